"""What a host has written down of the disks of one guest: whose they are and what they stand on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from models.errors import Broken, HostRefused
from models.ids import InstanceId, is_uuid
from workers.images.durable_files import read_record, write_record

_RECORD: Final = "owner.json"


@dataclass(frozen=True, slots=True)
class DiskRecord:
    """The owner of a folder of disks, the host that has them, and the keys of their bases."""

    instance_id: str
    host: str
    bases: tuple[str, ...] = ()

    def on(self, *bases: str) -> DiskRecord:
        """Return the record with these bases instead."""
        return replace(self, bases=bases)


def disks_of(folder: Path, instance_id: InstanceId) -> Path:
    """Return where the disks of a guest are; `HostRefused` for an id that is none."""
    if not is_uuid(instance_id):
        rule = "should be a UUID in its usual form"
        raise HostRefused("instance_id_invalid", f"instance is {instance_id[:60]!r}: {rule}")
    return folder / instance_id


def owner_of(disks: Path) -> DiskRecord | None:
    """Return the record of a folder; None where there is nothing in it yet.

    `Broken` (`disk_owner_unproven`) where files have no record, or the record of another guest:
    whose they are is for a person to say.
    """
    found = read_record(disks / _RECORD)
    if found is not None and found.get("instance_id") == disks.name:
        return DiskRecord(found["instance_id"], found["host"], tuple(found["bases"]))
    if not disks.exists() or not any(p.name != f"{_RECORD}.new" for p in disks.iterdir()):
        return None
    message = f"{disks} has no record of its owner that can be read: nothing in it is touched"
    raise Broken("disk_owner_unproven", message, folder=str(disks))


def write_owner(disks: Path, record: DiskRecord) -> None:
    """Write the record of a folder, which is made where it is missing."""
    disks.mkdir(parents=True, exist_ok=True)
    write_record(disks / _RECORD, asdict(record))


def used_bases(folder: Path) -> frozenset[str]:
    """Return the keys of all bases that disks stand on; `Broken` where that cannot be known."""
    return frozenset(base for record in _records(folder) for base in record.bases)


def _records(folder: Path) -> Iterator[DiskRecord]:
    for disks in folder.iterdir() if folder.is_dir() else ():
        if is_uuid(disks.name) and (record := owner_of(disks)) is not None:
            yield record
