"""Root disks as they travel: saved as an image, or from one host to another."""

from __future__ import annotations

from typing import Any, Literal

from models.messages.base import Message


class DiskImage(Message):
    """What a root disk can be made from again, on any host.

    `checksum` proves what is made of it. `ticket` is the hypervisor's own: where the content is,
    and by what right it is fetched.
    """

    id: str
    checksum: str
    ticket: dict[str, Any] = {}


class RootDisk(Message):
    """Where the root disk of a new guest comes from.

    `image`: made anew from its image. `snapshot`: from `disk`, with the data of an earlier guest.
    `copy`: awaited, the guest cannot start before it has come. `shared`: it is there already, on
    storage that hosts share. What a hypervisor cannot do of these it refuses.
    """

    origin: Literal["image", "snapshot", "copy", "shared"] = "image"
    disk: DiskImage | None = None
