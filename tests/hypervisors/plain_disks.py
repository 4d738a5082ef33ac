"""Disks of one image file, flat: just what a hypervisor needs to run guests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from models.errors import HostRefused
from models.ids import InstanceId
from models.messages.guests.guest_definition import GuestDefinition
from models.messages.guests.image_files import ImageFile
from models.messages.guests.root_disks import DiskImage
from workers.hypervisor.libvirt.domain_xml.host_context import GuestDisk
from workers.images.file_work import FileWork


class PlainDisks:
    """Keeps the root disk of each guest as a raw file of its own, made from one image."""

    def __init__(self, folder: Path, image: Path) -> None:
        self._folder = folder
        self._image = image

    def make(self, instance_id: InstanceId, guest: GuestDefinition, _: FileWork) -> None:
        """Have the root disk: a copy of the image, or one of its size that is still empty."""
        root = self._root(instance_id)
        root.parent.mkdir(parents=True, exist_ok=True)
        if root.exists() or (guest.root_disk.origin == "copy" and guest.power != "nostate"):
            return
        if guest.root_disk.origin == "copy":
            size = str(self._image.stat().st_size)
            subprocess.run(["truncate", "--size", size, root], check=True)
        else:
            shutil.copyfile(self._image, root)

    def remake_root(self, instance_id: InstanceId, guest: GuestDefinition, work: FileWork) -> None:
        """Have the root disk made anew."""
        self._root(instance_id).unlink(missing_ok=True)
        self.make(instance_id, guest, work)

    def resize(self, instance_id: InstanceId, guest: GuestDefinition, work: FileWork) -> None:
        """Leave it as it is."""

    def files(self, instance_id: InstanceId) -> tuple[GuestDisk, ...]:
        """Return the root disk."""
        return (GuestDisk("root", self._root(instance_id), "raw"),)

    def is_missing(self, instance_id: InstanceId) -> bool:
        """Say whether it has yet to come."""
        return not self._root(instance_id).exists()

    def remove(self, instance_id: InstanceId) -> None:
        """Remove the guest's folder."""
        shutil.rmtree(self._folder / instance_id, ignore_errors=True)

    def snapshot(self, instance_id: InstanceId, _: FileWork) -> DiskImage:
        """Say where it is: plain disks are read where they are."""
        return DiskImage(
            id=instance_id, checksum="none", ticket={"path": str(self._root(instance_id))}
        )

    def offer(self, instance_id: InstanceId, work: FileWork) -> DiskImage:
        """Say where it is."""
        return self.snapshot(instance_id, work)

    def take(
        self, instance_id: InstanceId, _: GuestDefinition, disk: DiskImage, _work: FileWork
    ) -> str:
        """Copy it from where it is."""
        source = Path(str(disk.ticket["path"]))
        if not source.exists():
            raise HostRefused("disk_damaged", f"disk {disk.id} is not where it was offered")
        shutil.copyfile(source, self._root(instance_id))
        return disk.checksum

    def cached(self) -> frozenset[str]:
        """Return nothing."""
        return frozenset()

    def cache(self, image: ImageFile, work: FileWork) -> None:
        """Do nothing: the one image is always there."""

    def withdraw(self, instance_id: InstanceId) -> None:
        """Do nothing: what another host reads is the disk itself."""

    def age_out(self, unused_s: float) -> tuple[str, ...]:
        """Remove nothing: there is one image, and it is no cache's."""
        return ()

    def _root(self, instance_id: InstanceId) -> Path:
        return self._folder / instance_id / "root"
