"""Following a versioned table: everything at first, then only what has changed since."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from conductor.store.ports import Changes, Versioned

T = TypeVar("T")


class Follower(Generic[T]):
    """What was last read of a table. Not for two threads at once."""

    def __init__(self, key_field: str, version: Callable[[T], int]) -> None:
        self._key_field = key_field
        self._version = version
        self._versions: dict[str, int] = {}
        self._mark = 0
        self._follows = False

    def changes(self, rows: Versioned[T]) -> Mapping[str, T | None]:
        """Return by key the records that are new or changed since the last call; dropped: None."""
        whole = not self._follows
        changes = rows.changes(self._mark, counted=True)
        versions = changes.versions
        self._mark, self._follows = changes.mark or 0, changes.mark is not None
        if not whole and self._has_lost_some(changes):
            whole, versions = True, rows.versions()
        stale = [key for key, version in versions.items() if self._versions.get(key) != version]
        asked: dict[str, Any] = {self._key_field: stale}
        read = rows.where(**asked) if stale else []
        changed: dict[str, T | None] = {getattr(item, self._key_field): item for item in read}
        if whole:
            changed |= {key: None for key in self._versions if key not in versions}
        for key, item in changed.items():
            if item is None:
                del self._versions[key]
            else:
                self._versions[key] = self._version(item)
        return changed

    def _has_lost_some(self, changes: Changes) -> bool:
        """Say whether fewer are left than were known: changes do not tell who was dropped."""
        came = sum(key not in self._versions for key in changes.versions)
        return changes.total != len(self._versions) + came
