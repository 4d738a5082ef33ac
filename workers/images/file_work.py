"""Long work on files: it can be aborted, reports its progress, and keeps to a rate."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Final

from models.errors import HostRefused

CHUNK_BYTES: Final = 1 << 20
"""How much is read at once: large enough for disks, small enough to notice an abort at once."""


@dataclass(frozen=True, slots=True)
class FileWork:
    """How one piece of work is ended from outside and tells how far it is, in percent.

    At most `bytes_per_s` are moved in a second where that is set.
    """

    aborted: Event = field(default_factory=Event)
    on_progress: Callable[[int], None] = lambda _: None
    bytes_per_s: int | None = None

    def check(self) -> None:
        """Raise `HostRefused` (`aborted`) once it shall end."""
        if self.aborted.is_set():
            raise HostRefused("aborted", "the work on disks and images was aborted")

    def pause(self, seconds: float) -> None:
        """Wait, but no longer than until it shall end; then raise as `check` does."""
        self.aborted.wait(seconds)
        self.check()


class Meter:
    """Counts bytes of one transfer: aborts it, slows it down, and reports each new percent."""

    def __init__(self, work: FileWork, total_bytes: int, done_bytes: int = 0) -> None:
        self._work = work
        self._total = max(1, total_bytes)
        self._done = done_bytes
        self._moved = 0
        self._since = time.monotonic()
        self._percent = -1

    def add(self, count: int) -> None:
        """Count bytes that were moved, and wait where that was faster than allowed."""
        self._done += count
        self._moved += count
        self._work.check()
        if self._work.bytes_per_s:
            due_s = self._moved / self._work.bytes_per_s
            ahead_s = due_s - (time.monotonic() - self._since)
            if ahead_s > 0:
                self._work.pause(ahead_s)
        percent = min(100, self._done * 100 // self._total)
        if percent != self._percent:
            self._percent = percent
            self._work.on_progress(percent)


def checksum_of(path: Path, work: FileWork) -> str:
    """Return `sha256:…` of a file's content."""
    digest = hashlib.sha256()
    meter = Meter(work, path.stat().st_size)
    with path.open("rb") as content:
        while chunk := content.read(CHUNK_BYTES):
            digest.update(chunk)
            meter.add(len(chunk))
    return f"sha256:{digest.hexdigest()}"
