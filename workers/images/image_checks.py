"""What an image must be before a guest sees it: what was declared, and nothing beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from models.errors import HostRefused, Unreachable
from models.messages.guests.image_files import ImageFile
from workers.images.file_work import FileWork
from workers.images.qcow2_header import qcow2_size
from workers.images.qemu_img import check, info

IMAGE_CORRUPT: Final = "image_corrupt"
"""Code of the `Unreachable` that says that an image came damaged: the next try may do better."""

_TRAPS: Final = ("backing-filename", "full-backing-filename", "backing-image", "snapshots")


def checked_size(path: Path, image: ImageFile, work: FileWork) -> int:
    """Return the virtual size in bytes of a file that came; `HostRefused` for what is unsafe.

    A file declared raw is raw, whatever it looks like: it is never opened as anything else. A
    qcow2 file is read by ourselves first, so that no tool ever opens what it may name.
    """
    what = f"image {image.id}"
    size = path.stat().st_size
    if image.format == "qcow2":
        size = qcow2_size(path, what)
        refuse_larger(size, image)
        _refuse_named_files(path, image, work)
        check(path, work)
    refuse_larger(size, image)
    if size == 0:
        raise HostRefused("image_format", f"{what} is empty")
    return size


def corrupt(image: ImageFile, found: str) -> Unreachable:
    """Return the error for content that is not what was promised."""
    message = f"image {image.id} came damaged: {found}"
    return Unreachable(IMAGE_CORRUPT, message, images=[image.id])


def refuse_larger(size: int, image: ImageFile) -> None:
    """Refuse (`image_too_large`) a disk that is larger than the image declares."""
    most = image.virtual_size_bytes
    if most is not None and size > most:
        message = f"image {image.id} makes a disk of {size} bytes: declared are {most}"
        raise HostRefused("image_too_large", message, size_bytes=size, declared_bytes=most)


def _refuse_named_files(path: Path, image: ImageFile, work: FileWork) -> None:
    """Have the tool say the same as the header: two readers that differ are a trap as well."""
    found = info(path, image.format, work)
    special = found.get("format-specific", {}).get("data", {})
    names = [name for name in _TRAPS if found.get(name)]
    names += [name for name in ("data-file", "encrypt") if special.get(name)]
    if found.get("format") != image.format or found.get("encrypted"):
        names.append("another format, or encryption")
    if names:
        message = f"image {image.id} has {', '.join(names)}: images must stand alone"
        raise HostRefused("image_unsafe", message, reason=names[0])
