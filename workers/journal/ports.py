"""The journal port: entries are added at the end, and all of them replaced at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from workers.journal.entries import Entry


class Journal(Protocol):
    """A durable list of entries. Safe to use from several threads.

    Every method raises `Broken` (`journal_failed`) once writing failed: what is on the disk is
    then unknown until the journal is opened again.
    """

    def entries(self) -> tuple[Entry, ...]:
        """Return everything written so far, oldest first."""
        ...

    def write(self, entry: Entry) -> None:
        """Add an entry; it is durable only after the next `sync`."""
        ...

    def sync(self) -> None:
        """Return when everything written before this call is durable."""
        ...

    def rewrite(self, entries: Sequence[Entry]) -> None:
        """Replace everything written so far, durably: after a crash either all or none of it."""
        ...
