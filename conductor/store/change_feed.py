"""The change feed: how a process follows a versioned table, all of it at first, then changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from conductor.store.ports import Changes, Versioned

T = TypeVar("T")


class Follower(Generic[T]):
    """One reader of a table's change feed: the versions last read, and the mark to resume at.

    Not for two threads at once.
    """

    def __init__(self, key_field: str, version: Callable[[T], int]) -> None:
        self._key_field = key_field
        self._version = version
        self._versions: dict[str, int] = {}
        self._mark = 0
        self._resumes = False

    @property
    def resumes(self) -> bool:
        """Whether the next call costs what has changed, not what is stored: the store has marks."""
        return self._resumes

    def changes(self, rows: Versioned[T], *, counted: bool = True) -> Mapping[str, T | None]:
        """Return by key the records that are new or changed since the last call; deleted: None.

        Deleted ones are noticed only when `counted`, which costs a count of the table.
        """
        whole = not self._resumes
        changes = rows.changes(self._mark, counted=counted)
        versions = changes.versions
        if not whole and counted and self._has_lost_some(changes):
            whole, versions = True, rows.versions()
        stale = [key for key, version in versions.items() if self._versions.get(key) != version]
        equals: dict[str, Any] = {self._key_field: stale}
        read = rows.where(**equals) if stale else []
        # Not before: what could not be read is asked for again.
        self._mark, self._resumes = changes.mark or 0, changes.mark is not None
        changed: dict[str, T | None] = {getattr(row, self._key_field): row for row in read}
        if whole:
            changed |= {key: None for key in self._versions if key not in versions}
        for key, row in changed.items():
            if row is None:
                del self._versions[key]
            else:
                self._versions[key] = self._version(row)
        return changed

    def note_written(self, records: Iterable[T]) -> None:
        """Skip these records, which this process wrote itself, until they change again.

        For records that are known already, after their commit; older versions are ignored.
        """
        for record in records:
            key, version = getattr(record, self._key_field), self._version(record)
            if self._versions.get(key, version) < version:
                self._versions[key] = version

    def _has_lost_some(self, changes: Changes) -> bool:
        """Say whether fewer are left than were known: changes do not show deleted records."""
        came = sum(key not in self._versions for key in changes.versions)
        return changes.total != len(self._versions) + came
