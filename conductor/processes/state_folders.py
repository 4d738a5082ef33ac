"""Folders that a process keeps its state in."""

from __future__ import annotations

import os
from pathlib import Path

from models.errors import Rejected


def make_folder(path: Path, setting: str) -> None:
    """Make a folder that can be written; raise `Rejected` naming the setting that names it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = str(error.strerror)
    else:
        if os.access(path, os.W_OK | os.X_OK):
            return
        why = "it cannot be written"
    raise Rejected("state_dir_unusable", f"{setting} is {path}: {why}", key=setting)
