"""A read-only, hashable mapping, so that values holding one stay values."""

from collections.abc import ItemsView, Iterator, Mapping
from typing import Generic, TypeVar, overload

Value_co = TypeVar("Value_co", covariant=True)
Other = TypeVar("Other")


class FrozenMap(Mapping[str, Value_co], Generic[Value_co]):
    """A mapping that cannot change; equal and hashed by content, whatever the key order."""

    __slots__ = ("_entries", "_hash")

    def __init__(self, entries: Mapping[str, Value_co]) -> None:
        # Sorted once, so that every walk over it is the same whoever built it.
        self._entries = dict(sorted(entries.items()))
        self._hash: int | None = None

    def __getitem__(self, key: str) -> Value_co:
        return self._entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    # The mixin's `get` raises and catches for every absent key; extra specs are mostly absent.
    @overload
    def get(self, key: str, /) -> Value_co | None: ...
    @overload
    def get(self, key: str, default: Value_co | Other, /) -> Value_co | Other: ...
    def get(self, key: str, default: object = None, /) -> object:
        """Return the entry of a key, or the default."""
        return self._entries.get(key, default)

    def items(self) -> ItemsView[str, Value_co]:
        """Return the entries, sorted by key."""
        return self._entries.items()

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(self._entries.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FrozenMap):
            return self._entries == other._entries
        if isinstance(other, Mapping):
            return self._entries == dict(other)
        return NotImplemented

    def __reduce__(self) -> tuple[type["FrozenMap[Value_co]"], tuple[dict[str, Value_co]]]:
        return (type(self), (self._entries,))

    def __repr__(self) -> str:
        return f"FrozenMap({self._entries!r})"
