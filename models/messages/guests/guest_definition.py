"""The definition of a guest: all that its host has to know to make it, and to make it again."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from models.messages.base import Versioned
from models.messages.catalogue import Count
from models.messages.guests.image_files import ImageFile
from models.messages.guests.root_disks import RootDisk
from models.messages.guests.virtual_hardware import VirtualHardware


class GuestDefinition(Versioned):
    """All that flavor, image and request decide of a guest; `placement` in the shape `fit` prints.

    `power` is what the guest shall be once it exists; `nostate` waits for a live migration.
    `disk_gb` is what its host is charged; `root_gib` of it are its root disk. `image` is None
    for a guest that boots from a volume.
    """

    task: ClassVar[str] = "compute.spawn"

    name: str
    vcpus: Count
    memory_mib: Count
    disk_gb: Count
    root_gib: Count = 0
    ephemeral_gib: Count = 0
    swap_mib: Count = 0
    image: ImageFile | None = None
    placement: dict[str, Any] | None = None
    hardware: VirtualHardware = VirtualHardware()
    project_id: str = ""
    metadata: dict[str, str] = {}
    root_disk: RootDisk = RootDisk()
    power: Literal["running", "shutdown", "nostate"] = "running"

    @property
    def image_id(self) -> str | None:
        """The id of the image of its root disk; None for a guest that boots from a volume."""
        return self.image.id if self.image else None


class RebuildArgs(GuestDefinition):
    """What a host needs to know to make a guest anew.

    With `unless_made` it is not made again where it is of this image already: the way back from a
    rebuild of which nobody knows whether it had begun.
    """

    unless_made: bool = False
