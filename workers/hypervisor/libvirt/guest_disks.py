"""The disks of a host's guests, as the hypervisor needs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from models.ids import InstanceId
from models.messages.guests.guest_definition import GuestDefinition
from models.messages.guests.image_files import ImageFile
from models.messages.guests.root_disks import DiskImage
from workers.hypervisor.libvirt.domain_xml.host_context import GuestDisk
from workers.images.file_work import FileWork


class GuestDisks(Protocol):
    """Makes, keeps and removes disks; every call may be repeated, and can be aborted.

    Raises `HostRefused` with nothing changed, `Unreachable` where the outcome is unknown.
    """

    def make(self, instance_id: InstanceId, guest: GuestDefinition, work: FileWork) -> None:
        """Have every disk of a guest, from where `guest.root_disk` says; those there are kept."""
        ...

    def remake_root(self, instance_id: InstanceId, guest: GuestDefinition, work: FileWork) -> None:
        """Have the root disk made anew from the image; what was on it is lost."""
        ...

    def resize(self, instance_id: InstanceId, guest: GuestDefinition, work: FileWork) -> None:
        """Grow the disks; shrinking is refused by name."""
        ...

    def files(self, instance_id: InstanceId) -> Sequence[GuestDisk]:
        """Return the disks that the guest has or awaits, the root disk first."""
        ...

    def is_missing(self, instance_id: InstanceId) -> bool:
        """Say whether the root disk has yet to come from another host."""
        ...

    def remove(self, instance_id: InstanceId) -> None:
        """Remove all that is of the guest."""
        ...

    def snapshot(self, instance_id: InstanceId, work: FileWork) -> DiskImage:
        """Save the root disk as an image that outlives the guest."""
        ...

    def offer(self, instance_id: InstanceId, work: FileWork) -> DiskImage:
        """Let another host take the root disk."""
        ...

    def withdraw(self, instance_id: InstanceId) -> None:
        """Let no other host take it any more: the guest stays here."""
        ...

    def take(
        self, instance_id: InstanceId, guest: GuestDefinition, disk: DiskImage, work: FileWork
    ) -> str:
        """Have the root disk that another host offers; return its checksum."""
        ...

    def cached(self) -> frozenset[str]:
        """Return the ids of the images that are cached."""
        ...

    def cache(self, image: ImageFile, work: FileWork) -> None:
        """Have an image in the cache."""
        ...

    def age_out(self, unused_s: float) -> tuple[str, ...]:
        """Remove the cached images that no disk has had for so long; return what has gone."""
        ...
