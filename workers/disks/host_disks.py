"""The disks of the guests of a host, as files: made, grown, made anew, saved, removed."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from models.errors import Broken, HostRefused
from models.ids import InstanceId
from models.messages.base import parse
from models.messages.guests.guest_definition import GuestDefinition
from models.messages.guests.image_files import ImageFile
from models.messages.guests.root_disks import DiskImage
from workers.disks.blank_disks import make_blank
from workers.disks.disk_files import BYTES_PER_GIB, BYTES_PER_MIB, DiskFile, disk_files
from workers.disks.disk_records import DiskRecord, disks_of, owner_of, write_owner
from workers.images.durable_files import publish, refusing_full_disk, sync_folder
from workers.images.file_work import FileWork, checksum_of
from workers.images.image_cache import ImageCache
from workers.images.image_entries import Base
from workers.images.image_store import STORE_SCHEME, ImageStore
from workers.images.qemu_img import LOOK, convert, run

ROOT, EPHEMERAL, SWAP = "root", "ephemeral", "swap"
_MAKING: Final = ".making"
_REMOVING: Final = ".removing-"


@dataclass(frozen=True, slots=True)
class DiskSettings:
    """Where disks are and the name of their host; whether root disks are overlays or `flat`.

    Snapshots go to the `store`.
    """

    folder: Path
    host: str
    flat: bool = False
    store: ImageStore | None = None


class HostDisks:
    """Keeps a folder for each guest. Every call may be repeated, whenever the one before ended.

    What is half made has another name than what is whole, and goes with the next call. The calls
    for one guest come one after the other. Raises `HostRefused` with nothing changed, and `Broken`
    (`disk_owner_unproven`) for folders that nobody can prove to be the guest's.
    """

    def __init__(self, settings: DiskSettings, cache: ImageCache) -> None:
        self.settings = settings
        self._cache = cache
        settings.folder.mkdir(parents=True, exist_ok=True)
        for left in settings.folder.glob(f"{_REMOVING}*"):
            shutil.rmtree(left)

    def files(self, instance_id: InstanceId) -> tuple[DiskFile, ...]:
        """Return the disks that a guest has, each whole; their names and paths never change."""
        return disk_files(disks_of(self.settings.folder, instance_id))

    def make(
        self, instance_id: InstanceId, spec: GuestDefinition, work: FileWork
    ) -> tuple[DiskFile, ...]:
        """Have the disks of a guest; those that are there are kept, whatever is on them.

        A root disk that is to be copied here is left out. `HostRefused`: `disk_too_small` where
        the image does not fit, `disk_missing` where shared storage has none, those of the cache.
        """
        disks, record = self._own(instance_id)
        if not self._has(disks, ROOT) and spec.image is not None:
            match spec.root_disk.origin:
                case "image":
                    self._make_root(disks, record, spec.image, spec, work)
                case "snapshot":
                    self._make_root(disks, record, _snapshot_file(spec), spec, work)
                case "shared":
                    message = f"{disks} has no root disk: this storage is not that of the source"
                    raise HostRefused("disk_missing", message)
                case "copy":
                    pass
        for name, size in _blanks(spec).items():
            if not self._has(disks, name):
                make_blank(disks / f"{name}.raw", size, swap=name == SWAP)
        return self.files(instance_id)

    def remake_root(self, instance_id: InstanceId, spec: GuestDefinition, work: FileWork) -> None:
        """Have the root disk anew from its image; the old one is there until the new one is."""
        if spec.image is None:
            return
        disks, record = self._own(instance_id)
        self._make_root(disks, record, spec.image, spec, work)

    def resize(self, instance_id: InstanceId, spec: GuestDefinition, work: FileWork) -> None:
        """Have disks of the sizes of a definition; `HostRefused` (`disk_shrink`) for smaller ones.

        Swap has nothing worth keeping: it is made anew. The guest must not run.
        """
        disks, _ = self._own(instance_id)
        wanted = {ROOT: spec.root_gib * BYTES_PER_GIB, **_blanks(spec)}
        found = {disk.name: disk for disk in self.files(instance_id)}
        for name in (ROOT, EPHEMERAL):
            _refuse_shrinking(found.get(name), wanted.get(name, 0))
        for name, disk in found.items():
            if name != SWAP and wanted.get(name, 0) > disk.virtual_size_bytes:
                grown = str(wanted[name])
                run(["resize", "-q", "-f", disk.format, str(disk.path), grown], LOOK, work)
        swap = found.get(SWAP)
        if swap is not None and swap.virtual_size_bytes != wanted.get(SWAP, 0):
            swap.path.unlink()
        for name, size in _blanks(spec).items():
            if not self._has(disks, name):
                make_blank(disks / f"{name}.raw", size, swap=name == SWAP)

    def snapshot(self, instance_id: InstanceId, work: FileWork) -> DiskImage:
        """Save the root disk in the store, standing alone; the guest must not write meanwhile.

        Of the same content the answer is the same. `HostRefused`: `disk_missing`, `no_store`.
        """
        store = self.settings.store
        if store is None:
            raise HostRefused("no_store", "this host has no image store to save a disk in")
        root = self.root(instance_id)
        made = root.path.parent / f"snapshot{_MAKING}"
        try:
            convert((root.path, root.format), (made, "qcow2"), work)
            checksum = checksum_of(made, work)
            name = f"{instance_id}-{checksum.removeprefix('sha256:')[:32]}.qcow2"
            store.put(name, made, work)
            return DiskImage(
                id=str(uuid.uuid5(uuid.NAMESPACE_OID, name)),
                checksum=checksum,
                ticket={
                    "source": f"{STORE_SCHEME}:{name}",
                    "format": "qcow2",
                    "size_bytes": made.stat().st_size,
                    "virtual_size_bytes": root.virtual_size_bytes,
                },
            )
        finally:
            made.unlink(missing_ok=True)

    def root(self, instance_id: InstanceId) -> DiskFile:
        """Return the root disk; `HostRefused` (`disk_missing`) where there is none."""
        for disk in self.files(instance_id):
            if disk.name == ROOT:
                return disk
        raise HostRefused("disk_missing", f"instance {instance_id} has no root disk here")

    def receive(self, instance_id: InstanceId, made: dict[Path, str]) -> None:
        """Have files that came from another host as disks: path of each to its name."""
        disks, record = self._own(instance_id)
        for path, name in made.items():
            publish(path, disks / name)
            self._forget_other(disks / name)
        write_owner(disks, record.on())

    def move_here(self, instance_id: InstanceId) -> None:
        """Have the disks on shared storage belong to this host, no longer to the one before."""
        disks = disks_of(self.settings.folder, instance_id)
        record = owner_of(disks)
        if record is not None and record.host != self.settings.host:
            write_owner(disks, DiskRecord(instance_id, self.settings.host, record.bases))

    def folder_of(self, instance_id: InstanceId) -> Path:
        """Return the folder of a guest's disks, made and owned where it is new."""
        return self._own(instance_id)[0]

    def remove(self, instance_id: InstanceId) -> None:
        """Remove the disks of a guest, once the record proves that they are its and this host's.

        On shared storage another host may have them by now: then there is nothing to remove.
        """
        disks = disks_of(self.settings.folder, instance_id)
        record = owner_of(disks)
        if record is None:
            shutil.rmtree(disks, ignore_errors=True)
        elif record.host == self.settings.host:
            gone = self.settings.folder / f"{_REMOVING}{instance_id}"
            if gone.exists():
                shutil.rmtree(gone)
            disks.rename(gone)
            sync_folder(self.settings.folder)
            shutil.rmtree(gone)

    def _own(self, instance_id: InstanceId) -> tuple[Path, DiskRecord]:
        disks = disks_of(self.settings.folder, instance_id)
        record = owner_of(disks)
        if record is None:
            record = DiskRecord(instance_id, self.settings.host)
            write_owner(disks, record)
        if record.host != self.settings.host:
            message = f"the disks of instance {instance_id} are those of host {record.host}"
            raise Broken("disk_elsewhere", message, host=record.host)
        for left in disks.glob(f"*{_MAKING}"):
            left.unlink()
        return disks, record

    def _has(self, disks: Path, name: str) -> bool:
        return any(disk.name == name for disk in disk_files(disks))

    def _make_root(
        self,
        disks: Path,
        record: DiskRecord,
        image: ImageFile,
        spec: GuestDefinition,
        work: FileWork,
    ) -> None:
        with self._cache.using(image, work) as base:
            size = spec.root_gib * BYTES_PER_GIB or base.virtual_size_bytes
            if size < base.virtual_size_bytes:
                message = (
                    f"root_gib is {spec.root_gib}: image {image.id} needs "
                    f"{base.virtual_size_bytes} bytes"
                )
                raise HostRefused("disk_too_small", message)
            # Before the overlay: what a disk stands on is known whenever we die.
            write_owner(disks, record.on(*{*record.bases, base.key}))
            with refusing_full_disk(disks):
                final = self._write_root(disks, base, size, work)
            self._forget_other(final)
            write_owner(disks, record.on(*(() if self.settings.flat else (base.key,))))

    def _write_root(self, disks: Path, base: Base, size: int, work: FileWork) -> Path:
        kind: Literal["raw", "qcow2"] = "raw" if self.settings.flat else "qcow2"
        made = disks / f"{ROOT}.{kind}{_MAKING}"
        if self.settings.flat:
            convert((base.path, "raw"), (made, "raw"), work)
            run(["resize", "-q", "-f", "raw", str(made), str(size)], LOOK, work)
        else:
            backing = ["-b", str(base.path.absolute()), "-F", "raw"]
            run(["create", "-q", "-f", "qcow2", *backing, str(made), str(size)], LOOK, work)
        final = disks / f"{ROOT}.{kind}"
        publish(made, final)
        return final

    def _forget_other(self, final: Path) -> None:
        """Remove the disk of the same name in another format, which the new one replaces."""
        for kind in ("raw", "qcow2"):
            other = final.with_suffix(f".{kind}")
            if other != final:
                other.unlink(missing_ok=True)


def _blanks(spec: GuestDefinition) -> dict[str, int]:
    sizes = {EPHEMERAL: spec.ephemeral_gib * BYTES_PER_GIB, SWAP: spec.swap_mib * BYTES_PER_MIB}
    return {name: size for name, size in sizes.items() if size}


def _snapshot_file(spec: GuestDefinition) -> ImageFile:
    disk = spec.root_disk.disk
    if disk is None or not str(disk.ticket.get("source", "")).startswith(f"{STORE_SCHEME}:"):
        message = "the snapshot says no place in the image store: its disk cannot be made"
        raise HostRefused("disk_missing", message)
    return parse(ImageFile, {"id": disk.id, "checksum": disk.checksum, **disk.ticket})


def _refuse_shrinking(disk: DiskFile | None, wanted: int) -> None:
    if disk is not None and wanted < disk.virtual_size_bytes and (wanted or disk.name != ROOT):
        message = f"{disk.name} disk has {disk.virtual_size_bytes} bytes: it cannot shrink to "
        message += f"{wanted} without losing data"
        raise HostRefused("disk_shrink", message, disk=disk.name)
