"""The disk files in the folder of a guest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from models.messages.catalogue import ImageFormat
from workers.images.qcow2_header import qcow2_virtual_size

BYTES_PER_MIB: Final = 1 << 20
BYTES_PER_GIB: Final = 1 << 30
_NAMES: Final = ("root", "ephemeral", "swap")
_FORMATS: Final[tuple[ImageFormat, ...]] = ("qcow2", "raw")


@dataclass(frozen=True, slots=True)
class DiskFile:
    """One disk: what it is to the guest (`root`, `ephemeral`, `swap`), and its file.

    Whoever opens the file names its `format`: nothing is probed.
    """

    name: str
    path: Path
    format: ImageFormat
    virtual_size_bytes: int


def disk_files(disks: Path) -> tuple[DiskFile, ...]:
    """Return the disks in a folder: root, ephemeral, swap, those that are there."""
    return tuple(
        DiskFile(name, path, kind, _size(path, kind))
        for name in _NAMES
        for kind in _FORMATS
        if (path := disks / f"{name}.{kind}").is_file()
    )


def _size(path: Path, kind: ImageFormat) -> int:
    return qcow2_virtual_size(path) if kind == "qcow2" else path.stat().st_size
