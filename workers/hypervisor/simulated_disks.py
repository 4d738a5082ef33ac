"""What is on the root disks of a simulation: short texts, which travel in messages."""

from __future__ import annotations

import hashlib
import uuid

from models.errors import HostRefused
from models.ids import InstanceId
from models.messages.guests.guest_definition import GuestDefinition
from models.messages.guests.root_disks import DiskImage


def made_disk(spec: GuestDefinition) -> str | None:
    """Return what is on the root disk of a new guest; None where it is awaited."""
    source = spec.root_disk
    if source.disk is not None:
        return disk_of(source.disk)
    if source.origin == "copy":
        return None
    if source.origin == "snapshot":
        raise HostRefused("disk_missing", "no snapshot is named to make the root disk from")
    return f"{source.origin} {spec.image_id or ''}".strip()


def disk_image(instance_id: InstanceId, content: str) -> DiskImage:
    """Return a disk as it travels; of the same content it is always the same."""
    name = f"disk/{instance_id}/{content}"
    return DiskImage(
        id=str(uuid.uuid5(uuid.NAMESPACE_OID, name)),
        checksum=_checksum(content),
        ticket={"content": content},
    )


def disk_of(disk: DiskImage) -> str:
    """Return what is on a disk that came; raise `HostRefused` (`disk_damaged`) for any other."""
    content = str(disk.ticket.get("content", ""))
    if _checksum(content) != disk.checksum:
        raise HostRefused("disk_damaged", f"disk {disk.id} is not what its checksum says")
    return content


def _checksum(content: str) -> str:
    return f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"
