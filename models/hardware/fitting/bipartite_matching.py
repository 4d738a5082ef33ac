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
    """A matching that grows row by row along shortest augmenting paths (Kuhn 1955)."""

    def __init__(self, rows: Sequence[Places]) -> None:
        self._rows = rows
        self._owner: dict[Places, int] = {}
        self._taken: Places = 0

    def add(self, row: int) -> bool:
        """Give the row a place too, moving others where needed; say whether that went."""
        asked_by: dict[int, tuple[int, Places]] = {}
        asked = [row]
        seen = 0
        for current in asked:
            places = self._rows[current] & ~seen
            free = places & ~self._taken
            if free:
                self._shift(current, free & -free, asked_by)
                return True
            seen |= places
            while places:
                place = places & -places
                places ^= place
                owner = self._owner[place]
                asked_by[owner] = current, place
                asked.append(owner)
        return False

    def _shift(self, row: int, place: Places, asked_by: dict[int, tuple[int, Places]]) -> None:
        """Give a row a free place, its old one to the row that asked for it, and so on."""
        self._taken |= place
        while True:
            self._owner[place] = row
            if row not in asked_by:
                return
            row, place = asked_by[row]
