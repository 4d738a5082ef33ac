"""Whether two hosts have the same storage: they do where they see the same marker."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final

from workers.images.durable_files import sync_file, sync_folder

_MARKER: Final = ".storage-id"


def storage_id(folder: Path) -> str:
    """Return the id of the storage that a folder is on; the first host to look writes it.

    Written whole under another name and linked: of two hosts that begin at once, one wins.
    """
    marker = folder / _MARKER
    if not marker.exists():
        folder.mkdir(parents=True, exist_ok=True)
        made = folder / f"{_MARKER}.{uuid.uuid4().hex}"
        made.write_text(str(uuid.uuid4()), "utf-8")
        sync_file(made)
        with suppress(FileExistsError):
            os.link(made, marker)
        made.unlink()
        sync_folder(folder)
    return marker.read_text("utf-8")
