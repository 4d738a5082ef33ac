"""A journal that outlives the agent, not the process: for the embedded mode and for tests."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from workers.journal.entries import Entry


class MemoryJournal:
    """Keeps entries in memory; `crash` forgets what was never synced, as a disk would."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._entries: list[Entry] = []
        self._synced = 0

    def entries(self) -> tuple[Entry, ...]:
        """Return everything written so far, oldest first."""
        with self._lock:
            return tuple(self._entries)

    def write(self, entry: Entry) -> None:
        """Add an entry; a crash before the next `sync` forgets it."""
        with self._lock:
            self._entries.append(entry)

    def sync(self) -> None:
        """Make everything written so far survive a crash."""
        with self._lock:
            self._synced = len(self._entries)

    def rewrite(self, entries: Sequence[Entry]) -> None:
        """Replace everything written so far."""
        with self._lock:
            self._entries = list(entries)
            self._synced = len(self._entries)

    def crash(self) -> None:
        """Forget what was written since the last `sync`."""
        with self._lock:
            del self._entries[self._synced :]
