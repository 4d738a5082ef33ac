"""The header of a qcow2 file, read by ourselves before any tool opens the file.

Whatever opens a qcow2 file also opens the files that it names. So those that name any are refused
from their first bytes alone. Layout: the qcow2 specification of QEMU, big-endian.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from models.errors import HostRefused

MAGIC: Final = b"QFI\xfb"
_FIELDS: Final = struct.Struct(">4sIQIIQIIQQIIQ")
_INCOMPATIBLE: Final = struct.Struct(">Q")
_FEATURES_AT: Final = 72
_COMPRESSION, _SUBCLUSTERS = 1 << 3, 1 << 4
_NAMES: Final = {0: "dirty", 1: "corrupt", 2: "external data file"}
_CLUSTER_BITS: Final = range(9, 22)


def qcow2_size(path: Path, what: str) -> int:
    """Return the virtual size in bytes of a qcow2 file that names no other file.

    `what` names it in the error. Raises `HostRefused`: `image_format` for what is no qcow2,
    `image_unsafe` for backing files, external data files, encryption, internal snapshots, and
    features that we do not know.
    """
    with path.open("rb") as content:
        head = content.read(_FEATURES_AT + _INCOMPATIBLE.size)
    if len(head) < _FIELDS.size or not head.startswith(MAGIC):
        raise HostRefused("image_format", f"{what} is declared qcow2: its content is not")
    _, version, backing_at, backing_bytes, cluster_bits, size, crypt, *rest = _FIELDS.unpack_from(
        head
    )
    snapshots = rest[4]
    if version not in (2, 3) or cluster_bits not in _CLUSTER_BITS:
        raise HostRefused("image_format", f"{what} is qcow2 of a version or layout nobody writes")
    features = _features(head) if version == 3 else 0
    for wrong, name in (
        (backing_at or backing_bytes, "a backing file"),
        (crypt, "encryption"),
        (snapshots, "internal snapshots"),
        (features & ~(_COMPRESSION | _SUBCLUSTERS), _named(features)),
    ):
        if wrong:
            message = f"{what} has {name}: images must stand alone"
            raise HostRefused("image_unsafe", message, reason=name)
    return int(size)


def qcow2_virtual_size(path: Path) -> int:
    """Return the virtual size in bytes that the header of a file of our own making names."""
    with path.open("rb") as content:
        return int(_FIELDS.unpack(content.read(_FIELDS.size))[5])


def _features(head: bytes) -> int:
    if len(head) < _FEATURES_AT + _INCOMPATIBLE.size:
        return ~(_COMPRESSION | _SUBCLUSTERS)
    return int(_INCOMPATIBLE.unpack_from(head, _FEATURES_AT)[0])


def _named(features: int) -> str:
    unusual = features & ~(_COMPRESSION | _SUBCLUSTERS)
    bits = [bit for bit in range(64) if unusual >> bit & 1]
    return "the features " + ", ".join(_NAMES.get(bit, f"bit {bit}") for bit in bits)
