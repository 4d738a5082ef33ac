"""Files that are whole or absent, whenever the process or the machine dies."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from models.errors import HostRefused
from workers.images.file_work import FileWork

_LOOK_AGAIN_S: Final = 0.1
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def publish(made: Path, final: Path) -> None:
    """Give a finished file its name: synced before, and its folder after."""
    sync_file(made)
    made.replace(final)
    sync_folder(final.parent)


def sync_file(path: Path) -> None:
    """Have a file's content on the medium."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the medium."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Replace a small JSON file as a whole."""
    made = path.with_name(f"{path.name}.new")
    made.write_text(json.dumps(record, sort_keys=True), "utf-8")
    publish(made, path)


def read_record(path: Path) -> dict[str, Any] | None:
    """Return what `write_record` wrote; None where there is none that can be read."""
    try:
        record = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return record if isinstance(record, dict) else None


@contextmanager
def locked(path: Path, work: FileWork, *, shared: bool = False) -> Iterator[None]:
    """Have the lock of a file, among threads and processes alike; a dead owner's is free.

    Waits as long as it takes, and ends with `work`.
    """
    with path.open("ab") as lock:
        while not _try_lock(lock.fileno(), shared=shared):
            work.pause(_LOOK_AGAIN_S)
        yield


@contextmanager
def locked_if_free(path: Path) -> Iterator[bool]:
    """Have the lock of a file for oneself, or False at once where somebody has it."""
    with path.open("ab") as lock:
        yield _try_lock(lock.fileno(), shared=False)


def _try_lock(descriptor: int, *, shared: bool) -> bool:
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def refusing_full_disk(folder: Path) -> Iterator[None]:
    """Turn a full disk into `HostRefused` (`disk_full`), which names the folder."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        message = f"{folder} has no space left: free some, or lower what the host offers"
        raise HostRefused("disk_full", message, folder=str(folder)) from error


def allocated_bytes(path: Path) -> int:
    """Return what a file takes on its disk, holes not counted; 0 where it is absent."""
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0
