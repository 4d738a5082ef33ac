"""A table in memory with its indexes, and what a reader sees of it while others write."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from conductor.store.prefix_query import StartsWith
from conductor.store.table_metadata import MANY, Key, Shape

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
Moment: TypeAlias = Callable[[T], float | None]
Overlay: TypeAlias = Mapping[Key, T | None]
"""Records as they were when a reader began, of those that were changed since."""


class Table(Generic[T]):
    """Records by key. `hashed` fields find their records; `moments` keep them sorted by a time.

    Only the one writer changes it, through `replace`; a moment of None leaves a record out.
    """

    def __init__(
        self,
        shape: Shape[T],
        hashed: Iterable[str] = (),
        moments: Mapping[str, Moment[T]] | None = None,
    ) -> None:
        self.shape = shape
        self.rows: dict[Key, T] = {}
        self.last_serial = 0
        self._moments = dict(moments or {})
        # Keys in dictionaries rather than sets: their order is that of writing, run after run.
        self._hashed: dict[str, dict[Any, dict[Key, None]]] = {name: {} for name in hashed}
        self._sorted: dict[str, list[tuple[float, Key]]] = {name: [] for name in self._moments}

    def replace(self, key: Key, value: T | None) -> T | None:
        """Put a record at a key, or nothing; return what was there."""
        before = self.rows.get(key)
        for name, buckets in self._hashed.items():
            _rehash(buckets, name, key, before, value)
        for name, moment in self._moments.items():
            old = None if before is None else moment(before)
            new = None if value is None else moment(value)
            if old != new:
                _resort(self._sorted[name], key, old, new)
        if value is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = value
        return before

    def get(self, key: Key, overlay: Overlay[T]) -> T | None:
        """Return the record that a reader with this overlay sees."""
        return overlay[key] if key in overlay else self.rows.get(key)

    def matching(self, equals: Mapping[str, Any], overlay: Overlay[T]) -> list[T]:
        """Return the records with these field values, in no order."""
        rows = self.rows
        found = [rows[key] for key in self._candidates(equals) if key not in overlay]
        found += [value for value in overlay.values() if value is not None]
        for name, criterion in equals.items():
            if isinstance(criterion, StartsWith):
                found = [v for v in found if _begins(getattr(v, name), criterion)]
            elif isinstance(criterion, MANY):
                wanted = set(criterion)
                found = [value for value in found if getattr(value, name) in wanted]
            else:
                found = [value for value in found if getattr(value, name) == criterion]
        return found

    def counts(self, name: str, overlay: Overlay[T]) -> dict[Any, int]:
        """Return every value of a hashed field that is there, with how many records have it."""
        found = {value: len(keys) for value, keys in self._hashed[name].items()}
        for key, old in overlay.items():
            now = self.rows.get(key)
            for record, step in ((now, -1), (old, +1)):
                if record is not None:
                    value = getattr(record, name)
                    found[value] = found.get(value, 0) + step
        return {value: count for value, count in found.items() if value is not None and count}

    def before(self, name: str, at: float, limit: int, overlay: Overlay[T]) -> list[T]:
        """Return the records whose moment is earlier than `at`, earliest first."""
        entries = self._sorted[name]
        end = bisect_left(entries, (at,))
        if not overlay:
            return [self.rows[key] for _, key in entries[: min(end, limit)]]
        seen = [entry for entry in entries[:end] if entry[1] not in overlay]
        seen += [entry for entry in self._hidden(name, overlay) if entry[0] < at]
        found = (self.get(key, overlay) for _, key in sorted(seen)[:limit])
        return [value for value in found if value is not None]

    def since(self, name: str, at: float, limit: int, overlay: Overlay[T]) -> list[T]:
        """Return the records whose moment is `at` or later, latest first."""
        entries = self._sorted[name]
        begin = bisect_left(entries, (at,))
        seen = [entry for entry in entries[begin:] if entry[1] not in overlay]
        seen += [entry for entry in self._hidden(name, overlay) if entry[0] >= at]
        found = (self.get(key, overlay) for _, key in sorted(seen, reverse=True)[:limit])
        return [value for value in found if value is not None]

    def _hidden(self, name: str, overlay: Overlay[T]) -> Iterator[tuple[float, Key]]:
        """Yield the moments of the records that a reader sees as they were."""
        moment = self._moments[name]
        for key, value in overlay.items():
            when = None if value is None else moment(value)
            if when is not None:
                yield when, key

    def _candidates(self, criteria: Mapping[str, Any]) -> Iterable[Key]:
        equals = {k: v for k, v in criteria.items() if not isinstance(v, StartsWith)}
        if len(self.shape.key) == 1 and self.shape.key[0] in equals:
            criterion = equals[self.shape.key[0]]
            wanted = set(criterion) if isinstance(criterion, MANY) else (criterion,)
            return [(item,) for item in wanted if (item,) in self.rows]
        best: Iterable[Key] = self.rows
        size = len(self.rows)
        for name in equals.keys() & self._hashed.keys():
            criterion, buckets = equals[name], self._hashed[name]
            wanted = set(criterion) if isinstance(criterion, MANY) else (criterion,)
            found = [buckets[item] for item in wanted if item in buckets]
            if (total := sum(map(len, found))) < size:
                best, size = chain.from_iterable(found), total
        return best


def _rehash(
    buckets: dict[Any, dict[Key, None]], name: str, key: Key, before: Any, value: Any
) -> None:
    old, new = getattr(before, name, None), getattr(value, name, None)
    if before is not None and value is not None and old == new:
        return
    if before is not None:
        bucket = buckets[old]
        del bucket[key]
        if not bucket:
            del buckets[old]
    if value is not None:
        buckets.setdefault(new, {})[key] = None


def _resort(
    entries: list[tuple[float, Key]], key: Key, old: float | None, new: float | None
) -> None:
    if old is not None:
        del entries[bisect_left(entries, (old, key))]
    if new is not None:
        insort(entries, (new, key))


def _begins(value: Any, criterion: StartsWith) -> bool:
    """Say whether a text begins so; what is absent does not, not even with nothing."""
    return value is not None and str(value).startswith(criterion.text)
