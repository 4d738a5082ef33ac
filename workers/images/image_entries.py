"""The files of one image in the cache, and what proves that they are whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from models.errors import HostRefused
from models.messages.guests.image_files import ImageFile
from workers.images.durable_files import read_record, write_record
from workers.images.file_work import FileWork, checksum_of

_LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class Base:
    """A flat raw file that disks can stand on; it is never written."""

    key: str
    path: Path
    virtual_size_bytes: int
    image_ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Entry:
    """The names of an entry's files; the lock stays when the others go."""

    folder: Path
    key: str

    @property
    def base(self) -> Path:
        """The content, raw."""
        return self.folder / f"{self.key}.base"

    @property
    def proof(self) -> Path:
        """What the base has to be; its time is that of the last use."""
        return self.folder / f"{self.key}.proof"

    @property
    def part(self) -> Path:
        """What has come so far."""
        return self.folder / f"{self.key}.part"

    @property
    def making(self) -> Path:
        """The base while it is made."""
        return self.folder / f"{self.key}.making"

    @property
    def lock(self) -> Path:
        """Shared by who uses the entry, exclusive to who makes or removes it."""
        return self.folder / f"{self.key}{_LOCK}"

    def exists(self) -> bool:
        """Say whether there is anything of it."""
        return any(path.exists() for path in (self.base, self.proof, self.part, self.making))

    def used_at(self) -> float:
        """Return when it was used last, in seconds since the epoch; 0 where it is not whole."""
        try:
            return self.proof.stat().st_mtime
        except FileNotFoundError:
            return max((p.stat().st_mtime for p in (self.part, self.base) if p.exists()), default=0)

    def forget_base(self) -> None:
        """Remove the base, its proof first."""
        self.proof.unlink(missing_ok=True)
        self.base.unlink(missing_ok=True)


def entry_of(folder: Path, image: ImageFile) -> Entry:
    """Return where an image is kept: by content, so that one id can never mean two."""
    if image.source is None or image.checksum is None or image.size_bytes is None:
        message = f"image {image.id} names no source, checksum or size: nothing can be fetched"
        raise HostRefused("image_undeclared", message)
    return Entry(folder, f"{image.checksum.removeprefix('sha256:')}-{image.format}")


def entries_in(folder: Path) -> Iterator[Entry]:
    """Return all entries, unfinished ones too."""
    for lock in sorted(folder.glob(f"*{_LOCK}")):
        yield Entry(folder, lock.name.removesuffix(_LOCK))


def base_of(entry: Entry, work: FileWork) -> Base | None:
    """Return the base of an entry that is whole, None for any other.

    A file that was touched since it was proven is read as a whole again: its time may have
    changed (a restored backup), its content must not.
    """
    proof = read_record(entry.proof)
    if proof is None or not entry.base.is_file():
        return None
    found = entry.base.stat()
    if found.st_size != proof["size_bytes"]:
        return None
    if found.st_mtime_ns != proof["mtime_ns"]:
        if checksum_of(entry.base, work) != proof["checksum"]:
            return None
        write_record(entry.proof, {**proof, "mtime_ns": found.st_mtime_ns})
    ids = frozenset(proof["image_ids"])
    return Base(entry.key, entry.base, proof["virtual_size_bytes"], ids)


def add_id(entry: Entry, base: Base, image_id: str) -> None:
    """Note that one more image has this content; the caller has the lock for itself."""
    proof = read_record(entry.proof) or {}
    write_record(entry.proof, {**proof, "image_ids": sorted({*base.image_ids, image_id})})
