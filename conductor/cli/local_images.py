"""The file of an image as it is described on the command line; one that is here is looked at."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from rich.progress import Progress

from conductor.cli.rendering.output import side_console
from models.errors import HostRefused, Rejected
from workers.images.file_work import FileWork, checksum_of
from workers.images.qcow2_header import MAGIC, qcow2_size

_SECTOR_BYTES: Final = 512


def described_source(source: str, stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an image's source: those stated, and of a file here those found.

    `source` is a URL or the path of a file. Raises `Rejected` (`image_file_differs`) where what is
    stated is not what is found.
    """
    known = {name: value for name, value in stated.items() if value is not None}
    path = _local(source)
    if path is None:
        return {"source": source, **known}
    found = _found(path, known.get("format"))
    for name, value in known.items():
        if found[name] != value:
            message = f"{name} is {value}: {path} has {found[name]}"
            raise Rejected("image_file_differs", message, key=name)
    return {"source": path.resolve().as_uri(), **found}


def _local(source: str) -> Path | None:
    """Return the file here that a source means; None for a URL of elsewhere."""
    parts = urlsplit(source)
    if parts.scheme and parts.scheme != "file":
        return None
    path = Path(unquote(parts.path)) if parts.scheme else Path(source)
    if path.is_file():
        return path
    if parts.scheme:
        return None
    raise Rejected("file_missing", f"source is {source}: no such file, and no URL", key="source")


def _found(path: Path, stated_format: str | None) -> dict[str, Any]:
    with path.open("rb") as content:
        found_format = "qcow2" if content.read(len(MAGIC)) == MAGIC else "raw"
    size = path.stat().st_size
    if stated_format == "raw":
        # It is their content: a raw disk may well begin so.
        found_format = "raw"
    try:
        virtual = qcow2_size(path, str(path)) if found_format == "qcow2" else size
    except HostRefused as error:
        raise Rejected(error.code, error.message, key="source") from None
    if virtual == 0 or virtual % _SECTOR_BYTES:
        message = f"source is {path}: {virtual} bytes are no disk, which has sectors of 512"
        raise Rejected("image_format", message, key="source")
    return {
        "format": found_format,
        "checksum": _checksum(path),
        "size_bytes": size,
        "virtual_size_bytes": virtual,
    }


def _checksum(path: Path) -> str:
    """Read the whole file, with a bar where somebody looks on."""
    if not sys.stderr.isatty():
        return checksum_of(path, FileWork())
    with Progress(console=side_console(), transient=True) as progress:
        bar = progress.add_task(f"reading {path.name}", total=100)
        return checksum_of(path, FileWork(on_progress=lambda p: progress.update(bar, completed=p)))
