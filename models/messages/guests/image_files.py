"""Where the content of an image is, and what proves it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from models.messages.base import Message
from models.messages.catalogue import Bytes, Checksum, ImageFormat
from models.messages.name_rules import Name


class ImageFile(Message):
    """The file of an image; without a `source` the image is a name only (simulated hosts).

    `source` is a URL (`file`, `http`, `https`, or `store` for the image store), `size_bytes` the
    length of the file, `checksum` of the file as it is at its source, `virtual_size_bytes` the most
    that a disk of it takes.
    """

    id: Name
    source: str | None = None
    format: ImageFormat = "qcow2"
    checksum: Checksum | None = None
    size_bytes: Annotated[int, Field(ge=0, le=2**63 - 1)] | None = None
    virtual_size_bytes: Bytes | None = None
