"""Which image store a URL means."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from models.errors import Rejected
from workers.images.directory_store import DirectoryStore
from workers.images.http_store import HttpStore
from workers.images.image_store import ImageStore


def open_store(url: str) -> ImageStore:
    """Return the store of a URL: `file:///folder`, `http://…` or `https://…`."""
    parts = urlsplit(url)
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return DirectoryStore(Path(unquote(parts.path)))
    if parts.scheme in ("http", "https") and parts.netloc:
        return HttpStore(url.rstrip("/"))
    rule = "should be file:///folder, http://server/… or https://server/…"
    raise Rejected("store_invalid", f"image store is {url}: {rule}", key="image_store")
