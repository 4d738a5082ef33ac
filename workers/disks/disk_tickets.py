"""What a host says of disks that it offers: where they are, by what right, and what proves them."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated

from pydantic import Field

from models.errors import HostRefused
from models.messages.base import Message, parse
from models.messages.catalogue import Bytes, Checksum, ImageFormat
from models.messages.guests.root_disks import DiskImage


class OfferedFile(Message):
    """One disk, standing alone: its file as it travels."""

    name: Annotated[str, Field(pattern=r"^(root|ephemeral|swap)$")]
    format: ImageFormat
    checksum: Checksum
    size_bytes: Bytes


class DiskTicket(Message):
    """The right to fetch the disks of one guest from the host at `url`.

    `certificate` (PEM) is the only one that the host may show; `token` is secret. Whoever has the
    storage `storage_id` has the disks already.
    """

    url: Annotated[str, Field(pattern=r"^https://[^/@?#]+/[0-9a-f-]{36}$")]
    certificate: Annotated[str, Field(max_length=10_000)]
    token: Annotated[str, Field(min_length=32, max_length=200)]
    storage_id: str
    files: Annotated[tuple[OfferedFile, ...], Field(min_length=1, max_length=3)]

    def checksum(self) -> str:
        """Return what proves all files together."""
        listed = [[file.name, file.format, file.checksum, file.size_bytes] for file in self.files]
        return f"sha256:{hashlib.sha256(json.dumps(listed).encode()).hexdigest()}"


def ticket_of(disk: DiskImage) -> DiskTicket:
    """Return the ticket of a disk; `HostRefused` (`disk_damaged`) unless it is what it proves."""
    ticket = parse(DiskTicket, disk.ticket)
    if ticket.checksum() != disk.checksum:
        raise HostRefused("disk_damaged", f"disk {disk.id} is not what its checksum says")
    return ticket
