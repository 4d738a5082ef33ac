"""The disks of libvirt's guests: those of the host, as its domains name them."""

from __future__ import annotations

from typing import cast

from models.errors import HostRefused
from models.ids import InstanceId
from models.messages.guests.guest_definition import GuestDefinition
from models.messages.guests.image_files import ImageFile
from models.messages.guests.root_disks import DiskImage
from workers.disks.disk_files import BYTES_PER_GIB
from workers.disks.disk_offers import DiskOffers
from workers.disks.disk_taking import take_disks
from workers.disks.host_disks import ROOT, HostDisks
from workers.hypervisor.libvirt.domain_xml.host_context import DiskName, GuestDisk
from workers.images.file_work import FileWork
from workers.images.image_cache import ImageCache
from workers.images.qemu_img import LOOK, run


class LibvirtDisks:
    """`GuestDisks` over the files of a host; a disk that has yet to come has its name already."""

    def __init__(self, disks: HostDisks, cache: ImageCache, offers: DiskOffers) -> None:
        self._disks = disks
        self._cache = cache
        self._offers = offers

    def make(self, instance_id: InstanceId, guest: GuestDefinition, work: FileWork) -> None:
        """Have every disk; for a live migration, an empty root disk for libvirt to write to.

        Raises `HostRefused` (`no_boot_disk`) for a guest without an image: volumes are not taken.
        """
        if guest.image is None:
            message = f"instance {instance_id} boots from a volume: libvirt hosts take none yet"
            raise HostRefused("no_boot_disk", message, instance_id=instance_id)
        self._disks.make(instance_id, guest, work)
        from_source = guest.root_disk.origin == "copy" and self.is_missing(instance_id)
        if from_source and guest.power == "nostate":
            self._make_empty(instance_id, guest, work)

    def remake_root(self, instance_id: InstanceId, guest: GuestDefinition, work: FileWork) -> None:
        """Have the root disk made anew from the image."""
        self._disks.remake_root(instance_id, guest, work)

    def resize(self, instance_id: InstanceId, guest: GuestDefinition, work: FileWork) -> None:
        """Grow the disks."""
        self._disks.resize(instance_id, guest, work)

    def files(self, instance_id: InstanceId) -> tuple[GuestDisk, ...]:
        """Return the disks, the root disk first, be it there or yet to come."""
        found = tuple(
            GuestDisk(cast(DiskName, disk.name), disk.path, disk.format)
            for disk in self._disks.files(instance_id)
        )
        if any(disk.name == ROOT for disk in found):
            return found
        to_come = self._disks.folder_of(instance_id) / f"{ROOT}.qcow2"
        return (GuestDisk("root", to_come, "qcow2"), *found)

    def is_missing(self, instance_id: InstanceId) -> bool:
        """Say whether the root disk has yet to come."""
        return all(disk.name != ROOT for disk in self._disks.files(instance_id))

    def remove(self, instance_id: InstanceId) -> None:
        """Remove all disks of the guest."""
        self._disks.remove(instance_id)

    def snapshot(self, instance_id: InstanceId, work: FileWork) -> DiskImage:
        """Save the root disk in the image store."""
        return self._disks.snapshot(instance_id, work)

    def offer(self, instance_id: InstanceId, work: FileWork) -> DiskImage:
        """Let another host take all disks of the guest, by the ticket that is returned."""
        return self._offers.offer(instance_id, work)

    def take(
        self, instance_id: InstanceId, guest: GuestDefinition, disk: DiskImage, work: FileWork
    ) -> str:
        """Have the disks that another host offers, in the sizes of the guest; their checksum."""
        checksum = take_disks(self._disks, instance_id, disk, work)
        self._disks.resize(instance_id, guest, work)
        return checksum

    def cached(self) -> frozenset[str]:
        """Return the ids of the images that are cached."""
        return self._cache.images()

    def cache(self, image: ImageFile, work: FileWork) -> None:
        """Have an image in the cache, whole."""
        with self._cache.using(image, work):
            pass

    def age_out(self, unused_s: float) -> tuple[str, ...]:
        """Remove the cached images that no disk has had for so long; return their keys."""
        return self._cache.age_out(unused_s)

    def withdraw(self, instance_id: InstanceId) -> None:
        """Let no other host take the disks any more."""
        self._offers.withdraw(instance_id)

    def _make_empty(self, instance_id: InstanceId, guest: GuestDefinition, work: FileWork) -> None:
        """Have an empty disk of the size that the source's has: libvirt copies block by block."""
        image = guest.image
        size = guest.root_gib * BYTES_PER_GIB or (image.virtual_size_bytes if image else None)
        if not size:
            message = f"the size of the root disk of instance {instance_id} is not known"
            raise HostRefused("disk_size_unknown", message, instance_id=instance_id)
        made = self._disks.folder_of(instance_id) / "root.qcow2.empty"
        run(["create", "-q", "-f", "qcow2", str(made), str(size)], LOOK, work)
        self._disks.receive(instance_id, {made: "root.qcow2"})
