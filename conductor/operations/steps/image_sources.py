"""Where the content of an image comes from: what has to be said of it, and what hosts are told."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from conductor.store import Instance, UnitOfWork
from models.errors import Rejected
from models.hardware import Image, ImageSource
from models.lifecycle import InstanceState
from models.messages.catalogue import ImageBody
from models.messages.guests.image_files import ImageFile

SCHEMES: Final = ("file", "http", "https", "store")
BYTES_PER_GIB: Final = 1 << 30
_PROOFS: Final = ("format", "checksum", "size_bytes")
_SHOWN: Final = 10


def refuse_source(body: ImageBody) -> None:
    """Refuse a source that says too little, and what means nothing without a source.

    Codes: `image_source_invalid`, `image_source_incomplete`.
    """
    given = [name for name in (*_PROOFS, "virtual_size_bytes") if getattr(body, name) is not None]
    if body.source is None:
        if given:
            message = f"{given[0]} is {getattr(body, given[0])}: it should go with a source"
            raise Rejected("image_source_incomplete", message, key=given[0])
        return
    if urlsplit(body.source).scheme not in SCHEMES:
        message = f"source is {body.source}: should begin with {', '.join(SCHEMES)} and ':'"
        raise Rejected("image_source_invalid", message, key="source")
    missing = [name for name in _PROOFS if name not in given]
    if missing:
        message = f"{missing[0]} is missing: a source should go with {', '.join(_PROOFS)}"
        raise Rejected("image_source_incomplete", message, key=missing[0])


def least_disk_gib(body: ImageBody) -> int:
    """Return how large the root disk has to be: what its image says, and at least its content."""
    return max(body.min_disk_gb, -(-(body.virtual_size_bytes or 0) // BYTES_PER_GIB))


def source_of(body: ImageBody) -> ImageSource | None:
    """Return the source of an image; one that says too little is `Rejected`."""
    refuse_source(body)
    if body.source is None:
        return None
    assert body.format is not None
    assert body.checksum is not None
    assert body.size_bytes is not None
    return ImageSource(
        body.source, body.format, body.checksum, body.size_bytes, body.virtual_size_bytes
    )


def image_file(image: Image) -> ImageFile:
    """Return what a host has to know of the file of an image."""
    source = image.source
    if source is None:
        return ImageFile(id=image.id)
    return ImageFile(
        id=image.id,
        source=source.url,
        format=source.format,
        checksum=source.checksum,
        size_bytes=source.size_bytes,
        virtual_size_bytes=source.virtual_size_bytes,
    )


def refuse_other_content(body: ImageBody, uow: UnitOfWork) -> None:
    """Refuse (`image_content_differs`) an id that instances have with other content.

    What an image is must not depend on when it was read. Of images without content nothing is
    looked up.
    """
    if body.source is None:
        return
    others = [
        instance.id
        for instance in _instances_of(body.id, uow)
        if (source := instance.image and instance.image.source) and source.checksum != body.checksum
    ]
    if others:
        message = (
            f"checksum is {body.checksum}: instances ({_shown(others)}) have image {body.id} with "
            "other content; give this one an id of its own"
        )
        raise Rejected("image_content_differs", message, key="checksum")


def refuse_needed_image(name: str, uow: UnitOfWork) -> None:
    """Refuse (`image_in_use`) to remove the image with content that instances are made of.

    They carry copies of what it says, but whoever removes it means to remove its content next.
    """
    entry = uow.catalogue.get("image", name)
    if entry is None or not entry.body.get("source"):
        return
    needing = [instance.id for instance in _instances_of(name, uow)]
    if needing:
        many = "1 instance is" if len(needing) == 1 else f"{len(needing)} instances are"
        message = f"name is {name}: {many} made from this image ({_shown(needing)})"
        raise Rejected("image_in_use", message, key="name")


def _instances_of(image_id: str, uow: UnitOfWork) -> list[Instance]:
    living = [state for state in InstanceState if state is not InstanceState.DELETED]
    found = uow.instances.where(state=living)
    return [instance for instance in found if instance.image and instance.image.id == image_id]


def _shown(ids: list[str]) -> str:
    return ", ".join(ids[:_SHOWN]) + ", …" * (len(ids) > _SHOWN)
