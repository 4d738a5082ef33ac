"""Matching rows to places of which each takes one; sets of places are integer bit sets."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

Places: TypeAlias = int
"""A set of places: bit n is set when place n is a member."""

Completes: TypeAlias = Callable[[int, Places], bool]
"""`completes(next_row, taken)`: can the rows from `next_row` on be placed beside `taken`?"""


def matched(rows: Sequence[Places]) -> int:
    """Return how many rows can have a place of their own at once."""
    matching = _Matching(rows)
    return sum(matching.add(row) for row in range(len(rows)))


def can_match_all(rows: Sequence[Places]) -> bool:
    """Say whether every row can have a place of its own."""
    matching = _Matching(rows)
    return all(matching.add(row) for row in range(len(rows)))


def first_matching(rows: Sequence[Places], completes: Completes) -> tuple[int, ...] | None:
    """Return the first assignment, compared place by place, that `completes` allows.

    It is asked at most once a row and place, so no permutation is enumerated. A place refused
    to one row is refused to its equals: had one of them a completion there, they could swap.
    """
    if not completes(0, 0):
        return None
    chosen: list[int] = []
    taken = 0
    refused: dict[Places, Places] = {}
    for row, places in enumerate(rows):
        for place in members(places & ~taken & ~refused.get(places, 0)):
            if completes(row + 1, taken | 1 << place):
                chosen.append(place)
                taken |= 1 << place
                break
            refused[places] = refused.get(places, 0) | 1 << place
    return tuple(chosen)


def members(places: Places) -> Iterator[int]:
    """Yield the places of a set in order."""
    while places:
        lowest = places & -places
        yield lowest.bit_length() - 1
        places ^= lowest


def transposed(rows: Sequence[Places], width: int) -> list[int]:
    """Return for each place the set of rows that may take it."""
    columns = [0] * width
    for row, places in enumerate(rows):
        for place in members(places):
            columns[place] |= 1 << row
    return columns


class _Matching:
    """A matching that grows row by row along augmenting paths (Kuhn 1955)."""

    def __init__(self, rows: Sequence[Places]) -> None:
        self._rows = rows
        self._owner: dict[Places, int] = {}
        self._visited: Places = 0

    def add(self, row: int) -> bool:
        """Give the row a place too, moving others where needed; say whether that went."""
        self._visited = 0
        return self._augment(row)

    def _augment(self, row: int) -> bool:
        while places := self._rows[row] & ~self._visited:
            place = places & -places
            self._visited |= place
            owner = self._owner.get(place)
            if owner is None or self._augment(owner):
                self._owner[place] = row
                return True
        return False
