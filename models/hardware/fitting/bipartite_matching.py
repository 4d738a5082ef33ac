"""Bipartite matching of rows (guest cells) to places (host cells), one row a place.

Kuhn's augmenting paths (1955), searched breadth-first. Rows are sets of places as integers, so
that a row's free places are found by one `&`. R rows and P places cost O(R * R) steps, since a
search meets every row at most once; without a conflict it is one step a row.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from models.bit_sets import set_bits

Places: TypeAlias = int
"""A set of places: bit n is set when place n is a member."""

IsFeasible: TypeAlias = Callable[[int, Places], bool]
"""`is_feasible(next_row, used)`: can the rows from `next_row` on avoid the places in use?"""


def matching_size(rows: Sequence[Places]) -> int:
    """Return how many rows can have a place of their own at once."""
    matching = _Matching(rows)
    return sum(matching.add(row) for row in range(len(rows)))


def can_match_all(rows: Sequence[Places]) -> bool:
    """Say whether every row can have a place of its own."""
    matching = _Matching(rows)
    return all(matching.add(row) for row in range(len(rows)))


def first_matching(rows: Sequence[Places], is_feasible: IsFeasible) -> tuple[int, ...] | None:
    """Return the first assignment in lexicographic order that `is_feasible` allows, or None.

    Greedy with lookahead: a place is kept only if the rest can still be completed, so nothing is
    ever taken back. At most R * P calls instead of P! permutations.
    """
    # 1. One call decides whether there is any answer.
    if not is_feasible(0, 0):
        return None
    chosen: list[int] = []
    used = 0
    # A place refused to one row is refused to its equals: had one of them a completion there,
    # the two could swap. So each kind of row tries each place once: O(kinds * P) refusals.
    refused: dict[Places, Places] = {}
    for row, places in enumerate(rows):
        # 2. The lowest place after which the other rows are still feasible is this row's.
        for place in set_bits(places & ~used & ~refused.get(places, 0)):
            if is_feasible(row + 1, used | 1 << place):
                chosen.append(place)
                used |= 1 << place
                break
            refused[places] = refused.get(places, 0) | 1 << place
    return tuple(chosen)


def transposed(rows: Sequence[Places], width: int) -> list[int]:
    """Return for each place the set of rows that may use it."""
    columns = [0] * width
    for row, places in enumerate(rows):
        for place in set_bits(places):
            columns[place] |= 1 << row
    return columns


class _Matching:
    """A matching that grows row by row along shortest augmenting paths."""

    def __init__(self, rows: Sequence[Places]) -> None:
        self._rows = rows
        self._owner: dict[Places, int] = {}
        self._used: Places = 0

    def add(self, row: int) -> bool:
        """Match the row too, moving others where needed; return whether that worked."""
        # `displaced_by[owner]` is the row that would move the owner, and from which place.
        displaced_by: dict[int, tuple[int, Places]] = {}
        queue = [row]
        seen = 0
        for current in queue:
            # 1. A free place ends the path: O(1), whatever the number of places.
            places = self._rows[current] & ~seen
            free = places & ~self._used
            if free:
                self._augment(current, free & -free, displaced_by)
                return True
            # 2. Otherwise the owners of its places may move: each row joins the queue once.
            seen |= places
            while places:
                place = places & -places
                places ^= place
                owner = self._owner[place]
                displaced_by[owner] = current, place
                queue.append(owner)
        # 3. The queue ran dry: its rows have too few places together (Hall's condition).
        return False

    def _augment(
        self, row: int, place: Places, displaced_by: dict[int, tuple[int, Places]]
    ) -> None:
        """Flip the path: the row gets the free place, its old one goes to the row before it."""
        self._used |= place
        while True:
            self._owner[place] = row
            if row not in displaced_by:
                return
            row, place = displaced_by[row]
