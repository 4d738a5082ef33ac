"""The images of a host: fetched once, kept as flat raw bases, within a budget of disk."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from models.errors import HostRefused
from models.messages.guests.image_files import ImageFile
from workers.images.durable_files import (
    allocated_bytes,
    locked,
    locked_if_free,
    publish,
    refusing_full_disk,
    sync_folder,
    write_record,
)
from workers.images.file_work import FileWork, checksum_of
from workers.images.image_checks import checked_size, refuse_larger
from workers.images.image_download import download, source_of
from workers.images.image_entries import Base, Entry, add_id, base_of, entries_in, entry_of
from workers.images.image_store import STORE_SCHEME, ImageStore, stored_name
from workers.images.qemu_img import convert

BYTES_PER_GIB: Final = 1 << 30
IMAGE_CACHE_FULL: Final = "image_cache_full"


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """Where images are kept and how many GiB of disk they may take.

    The host must not offer the budget as disk for guests. Sources may be files below `file_roots`
    and files of the `store`.
    """

    folder: Path
    budget_gib: int
    file_roots: tuple[Path, ...] = ()
    store: ImageStore | None = None


class ImageCache:
    """Keeps an entry for each content, named by its checksum; safe among threads and processes.

    `used` returns the keys of the bases that disks stand on; it raises where that cannot be known,
    and then nothing is removed.
    """

    def __init__(self, settings: CacheSettings, used: Callable[[], frozenset[str]]) -> None:
        self._settings = settings
        self._used = used
        settings.folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def using(self, image: ImageFile, work: FileWork) -> Iterator[Base]:
        """Have the base of an image, fetched unless it is there, which stays inside the block.

        However many wait for it, one of them fetches. Raises `HostRefused` (`image_undeclared`,
        `image_unsafe`, `image_format`, `image_too_large`, `image_cache_full`, `disk_full`,
        `aborted`) and `Unreachable` (`image_unreachable`, `image_corrupt`).
        """
        entry = entry_of(self._settings.folder, image)
        while True:
            with locked(entry.lock, work, shared=True):
                base = base_of(entry, work)
                if base is not None and image.id in base.image_ids:
                    refuse_larger(base.virtual_size_bytes, image)
                    os.utime(entry.proof)
                    yield base
                    return
            with locked(entry.lock, work):
                base = base_of(entry, work)
                if base is None:
                    self._make(entry, image, work)
                else:
                    add_id(entry, base, image.id)

    def images(self) -> frozenset[str]:
        """Return the ids of the images that are whole."""
        whole = (base_of(entry, FileWork()) for entry in entries_in(self._settings.folder))
        return frozenset(id_ for base in whole if base is not None for id_ in base.image_ids)

    def used_bytes(self) -> int:
        """Return what the cache takes on the disk, unfinished work included."""
        return sum(allocated_bytes(path) for path in self._settings.folder.iterdir())

    def age_out(self, unused_s: float) -> tuple[str, ...]:
        """Remove what no disk and no running work has used for so long; return the keys."""
        before = time.time() - unused_s
        return tuple(
            entry.key
            for entry in entries_in(self._settings.folder)
            if entry.used_at() <= before and self._remove(entry)
        )

    def _make(self, entry: Entry, image: ImageFile, work: FileWork) -> None:
        """Fetch, check, convert, publish; what is left of an earlier try goes or is continued."""
        entry.forget_base()
        entry.making.unlink(missing_ok=True)
        assert image.size_bytes is not None
        self._make_headroom(entry, image.size_bytes - allocated_bytes(entry.part))
        try:
            guarded = self._guarded(entry, work)
            source = source_of(self._url(image), self._settings.file_roots)
            download(source, image, entry.part, guarded)
            size = checked_size(entry.part, image, work)
            self._convert(entry, image, work)
            self._publish(entry, image, size, work)
            entry.part.unlink(missing_ok=True)
        except HostRefused as error:
            if error.code != "aborted":
                entry.part.unlink(missing_ok=True)
            raise
        finally:
            entry.making.unlink(missing_ok=True)

    def _guarded(self, entry: Entry, work: FileWork) -> FileWork:
        """Have the budget looked at while content comes: others may be fetching as well."""

        def on_progress(percent: int) -> None:
            self._make_headroom(entry, 0)
            work.on_progress(percent)

        return replace(work, on_progress=on_progress)

    def _convert(self, entry: Entry, image: ImageFile, work: FileWork) -> None:
        guard = partial(self._make_headroom, entry, 0)
        with refusing_full_disk(self._settings.folder):
            if image.format == "raw":
                entry.part.rename(entry.making)
            else:
                convert((entry.part, image.format), (entry.making, "raw"), work, guard)
        guard()

    def _publish(self, entry: Entry, image: ImageFile, size: int, work: FileWork) -> None:
        """Give the base its name, then the proof: a base without one is as good as none."""
        checksum = image.checksum if image.format == "raw" else checksum_of(entry.making, work)
        entry.making.chmod(0o444)
        publish(entry.making, entry.base)
        found = entry.base.stat()
        write_record(
            entry.proof,
            {
                "image_ids": [image.id],
                "checksum": checksum,
                "virtual_size_bytes": size,
                "size_bytes": found.st_size,
                "mtime_ns": found.st_mtime_ns,
            },
        )

    def _make_headroom(self, entry: Entry, needed_bytes: int) -> None:
        """Remove the longest unused until so much fits; `HostRefused` when it cannot."""
        budget = self._settings.budget_gib * BYTES_PER_GIB
        if self.used_bytes() + needed_bytes <= budget:
            return
        others = [e for e in entries_in(self._settings.folder) if e.key != entry.key]
        for other in sorted(others, key=Entry.used_at):
            self._remove(other)
            if self.used_bytes() + needed_bytes <= budget:
                return
        message = (
            f"the image cache takes {self.used_bytes()} bytes, {needed_bytes} more are needed, "
            f"{budget} is its budget, and disks or running work use the rest"
        )
        raise HostRefused(IMAGE_CACHE_FULL, message, budget_bytes=budget)

    def _remove(self, entry: Entry) -> bool:
        """Remove an entry that nobody uses: asked under its lock, so that none begins to."""
        with locked_if_free(entry.lock) as free:
            if not free or not entry.exists() or entry.key in self._used():
                return False
            entry.forget_base()
            entry.part.unlink(missing_ok=True)
            entry.making.unlink(missing_ok=True)
        sync_folder(self._settings.folder)
        return True

    def _url(self, image: ImageFile) -> str:
        source = image.source or ""
        if not source.startswith(f"{STORE_SCHEME}:"):
            return source
        if self._settings.store is None:
            raise HostRefused("image_source", f"source is {source}: this host has no image store")
        return self._settings.store.location(stored_name(source))
