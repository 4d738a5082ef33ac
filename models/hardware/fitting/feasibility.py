"""Whether a partial assignment of guest cells to host cells can still be completed.

1. Can the remaining rows be matched to free places? Kuhn's matching, O(rows * rows).
2. Do all usable places together supply the networks and devices? One maximum flow, first call only.
3. Does the last set of places that sufficed still do? One matching; the usual case.
4. Else search a small set of places that covers every deficit and that rows can fill: branch and
   bound with lookahead over packed counters, dead ends remembered. Exponential at worst
   (a knapsack in disguise), some milliseconds on hosts of up to 32 cells.
5. Check the set found with a maximum flow. Its minimum cut, where it falls short, is a set of
   requests that violates Hall's condition: it gets a counter of its own, and 4 starts again
   (constraint generation; there are exponentially many sets, few ever matter).
"""

from typing import TypeAlias

from models.bit_sets import set_bits
from models.hardware.fitting.affinity import Affinity, Requests
from models.hardware.fitting.bipartite_matching import Places, can_match_all, transposed
from models.hardware.fitting.supply_vectors import Deficit, SupplyVectors

_Users: TypeAlias = tuple[int, ...]
"""For each of some places, the set of rows that may use it, sorted."""


class Feasibility:
    """Answers `is_feasible` for one guest on one host, with the results of earlier calls.

    Checked apart: a matching that covers the remaining rows, and one that covers some places that
    supply the missing networks and devices. By the theorem of Mendelsohn and Dulmage (1958) one
    that covers both exists whenever each exists alone, and more cells never supply less.
    """

    def __init__(self, rows: tuple[Places, ...], width: int, affinity: Affinity | None) -> None:
        self._rows = rows
        self._width = width
        self._affinity = affinity
        self._enough: Places | None = None
        self._search: _Search | None = None

    def is_feasible(self, next_row: int, used: Places) -> bool:
        """Say whether the rows from `next_row` on can be placed on the places not used."""
        # 1. Rows to free places.
        if not can_match_all([row & ~used for row in self._rows[next_row:]]):
            return False
        if self._affinity is None:
            return True
        # 2. All usable places together.
        if not next_row and self._affinity.missing(_all_of(self._rows)):
            return False
        search = self._search or self._searching(self._affinity, ())
        # 3. The set that sufficed last time.
        if self._enough is not None and search.fillable(next_row, self._enough & ~used):
            return True
        # 4. Search a set of places.
        while (found := search.places(next_row, used)) is not None:
            # 5. Check it with a maximum flow.
            devices = self._affinity.devices
            short = devices.shortfall(used | found) if devices else None
            if short is None:
                self._enough = used | found
                return True
            # The minimum cut is a set of requests without a counter: add one, search again.
            search = self._searching(self._affinity, (*search.sets, short.requests))
        return False

    def _searching(self, affinity: Affinity, sets: tuple[Requests, ...]) -> "_Search":
        if not sets and affinity.devices:
            pair = tuple(1 << request for request in range(len(affinity.devices.needs)))
            sets = (*pair, sum(pair)) if len(pair) > 1 else pair
        self._search = _Search(affinity, sets, self._rows, self._width)
        return self._search


def _all_of(rows: tuple[Places, ...]) -> Places:
    usable = 0
    for row in rows:
        usable |= row
    return usable


class _Search:
    """Branch and bound for places that cover a deficit, best coverage first, with memoization."""

    def __init__(
        self, affinity: Affinity, sets: tuple[Requests, ...], rows: tuple[Places, ...], width: int
    ) -> None:
        self.sets = sets
        self._rows = len(rows)
        self._users = transposed(rows, width)
        self._supply = SupplyVectors(affinity, sets, list(map(bool, self._users)), len(rows))
        self._position = {place: n for n, place in enumerate(self._supply.order)}
        self._matchable: dict[_Users, bool] = {}
        self._dead: set[object] = set()

    def places(self, next_row: int, used: Places) -> Places | None:
        """Return free places that cover the deficit and that the rows left can fill, or None."""
        deficit = self._supply.deficit(used)
        if not deficit[0]:
            return 0
        at = self._position
        passed = sum(1 << at[place] for place in set_bits(used) if place in at)
        return self._from(0, (next_row, passed), (), deficit)

    def fillable(self, next_row: int, places: Places) -> bool:
        """Say whether distinct rows from `next_row` on can fill all these places."""
        return can_match_all([self._users[place] >> next_row for place in set_bits(places)])

    def _from(
        self, start: int, begun: tuple[int, Places], used: _Users, deficit: Deficit
    ) -> Places | None:
        """Return such places from a position of the order on, besides those already used."""
        next_row, passed = begun
        # 1. A state that failed before fails again: equal sets of rows and deficits, not cells.
        key = (start, next_row, passed >> start, used, deficit)
        if key in self._dead:
            return None
        supply = self._supply
        spare = self._rows - next_row - len(used)
        for position in range(start, len(supply.order)):
            # 2. Bound: the best that so many further places could supply is too little.
            if not supply.may_end(deficit, position, spare):
                break
            if passed >> position & 1:
                continue
            # 3. Branch: use this place, if it helps and rows can fill it and those before it.
            place = supply.order[position]
            rest = supply.less(deficit, place)
            more = tuple(sorted((*used, self._users[place] >> next_row)))
            if rest[0] == deficit[0] or not self._can_fill(more):
                continue
            found = self._from(position + 1, begun, more, rest) if rest[0] else 0
            if found is not None:
                return found | 1 << place
        self._dead.add(key)
        return None

    def _can_fill(self, used: _Users) -> bool:
        known = self._matchable.get(used)
        if known is None:
            known = self._matchable[used] = can_match_all(used)
        return known
