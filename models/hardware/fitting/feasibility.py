"""Whether a begun assignment of guest cells to host cells can still be completed."""

from typing import TypeAlias

from models.hardware.fitting.affinity import Affinity, Requests
from models.hardware.fitting.bipartite_matching import Places, can_match_all, members, transposed
from models.hardware.fitting.supply_vectors import Lack, Offers

_Takers: TypeAlias = tuple[int, ...]
"""For each of some places, the set of rows that may take it, sorted."""


class Completion:
    """Answers `possible` for one guest on one host, remembering what it met.

    Two things are checked apart: that the remaining guest cells can all be placed, and that
    some places which offer the missing networks and devices can all be filled by them. A
    matching that covers both exists whenever each exists alone (Mendelsohn and Dulmage, 1958),
    and further cells never take away what is offered.
    """

    def __init__(self, rows: tuple[Places, ...], width: int, affinity: Affinity | None) -> None:
        self._rows = rows
        self._width = width
        self._affinity = affinity
        self._enough: Places | None = None
        self._search: _Search | None = None

    def possible(self, next_row: int, taken: Places) -> bool:
        """Say whether the rows from `next_row` on can be placed beside the taken places."""
        if not can_match_all([row & ~taken for row in self._rows[next_row:]]):
            return False
        if self._affinity is None:
            return True
        if not next_row and self._affinity.missing(_all_of(self._rows)):
            return False
        search = self._search or self._searching(self._affinity, ())
        if self._enough is not None and search.fillable(next_row, self._enough & ~taken):
            return True
        while (found := search.places(next_row, taken)) is not None:
            devices = self._affinity.devices
            short = devices.shortfall(taken | found) if devices else None
            if short is None:
                self._enough = taken | found
                return True
            # The sets looked at were served and yet one is not: look at that one too.
            search = self._searching(self._affinity, (*search.sets, short.requests))
        return False

    def _searching(self, affinity: Affinity, sets: tuple[Requests, ...]) -> "_Search":
        if not sets and affinity.devices:
            pair = tuple(1 << request for request in range(len(affinity.devices.wants)))
            sets = (*pair, sum(pair)) if len(pair) > 1 else pair
        self._search = _Search(affinity, sets, self._rows, self._width)
        return self._search


def _all_of(rows: tuple[Places, ...]) -> Places:
    usable = 0
    for row in rows:
        usable |= row
    return usable


class _Search:
    """Looks for places that end a lack, the most helpful first; dead ends are remembered."""

    def __init__(
        self, affinity: Affinity, sets: tuple[Requests, ...], rows: tuple[Places, ...], width: int
    ) -> None:
        self.sets = sets
        self._rows = len(rows)
        self._takers = transposed(rows, width)
        self._offers = Offers(affinity, sets, list(map(bool, self._takers)), len(rows))
        self._position = {place: n for n, place in enumerate(self._offers.order)}
        self._matchable: dict[_Takers, bool] = {}
        self._dead: set[object] = set()

    def places(self, next_row: int, taken: Places) -> Places | None:
        """Return free places that end all lack and that the rows left can fill, or None."""
        lack = self._offers.lack(taken)
        if not lack[0]:
            return 0
        at = self._position
        passed = sum(1 << at[place] for place in members(taken) if place in at)
        return self._from(0, (next_row, passed), (), lack)

    def fillable(self, next_row: int, places: Places) -> bool:
        """Say whether distinct rows from `next_row` on can take all these places."""
        return can_match_all([self._takers[place] >> next_row for place in members(places)])

    def _from(
        self, start: int, begun: tuple[int, Places], used: _Takers, lack: Lack
    ) -> Places | None:
        """Return such places from a position of the order on, beside those already used."""
        next_row, passed = begun
        key = (start, next_row, passed >> start, used, lack)
        if key in self._dead:
            return None
        offers = self._offers
        spare = self._rows - next_row - len(used)
        for position in range(start, len(offers.order)):
            if not offers.may_end(lack, position, spare):
                break
            if passed >> position & 1:
                continue
            place = offers.order[position]
            rest = offers.less(lack, place)
            more = tuple(sorted((*used, self._takers[place] >> next_row)))
            if rest[0] == lack[0] or not self._can_fill(more):
                continue
            found = self._from(position + 1, begun, more, rest) if rest[0] else 0
            if found is not None:
                return found | 1 << place
        self._dead.add(key)
        return None

    def _can_fill(self, used: _Takers) -> bool:
        known = self._matchable.get(used)
        if known is None:
            known = self._matchable[used] = can_match_all(used)
        return known
