"""Whether a begun assignment of guest cells to host cells can still be completed."""

from collections.abc import Iterable
from typing import TypeAlias

from models.hardware.affinity import Affinity, Lack
from models.hardware.matching import Places, can_match_all, members, transposed

_Begun: TypeAlias = tuple[int, Places]


class Completion:
    """Answers `possible` for one guest on one host, remembering the dead ends it met.

    Two things are checked apart: that the remaining guest cells can all be placed, and that
    some places which offer the missing networks and devices can all be filled by them. A
    matching that covers both exists whenever each exists alone (Mendelsohn and Dulmage, 1958),
    and further cells never take away what is offered.
    """

    def __init__(self, rows: tuple[Places, ...], width: int, affinity: Affinity | None) -> None:
        self._rows = rows
        self._affinity = affinity
        self._takers = transposed(rows, width)
        offers = affinity.kinds(width) if affinity else [()] * width
        # Places of equal offers and equal takers can stand in for each other in any answer.
        numbers: dict[object, int] = {}
        self._kinds = [
            numbers.setdefault(kind, len(numbers))
            for kind in zip(offers, self._takers, strict=True)
        ]
        self._dead: set[object] = set()

    def possible(self, next_row: int, taken: Places) -> bool:
        """Say whether the rows from `next_row` on can be placed beside the taken places."""
        rows = [row & ~taken for row in self._rows[next_row:]]
        if not can_match_all(rows):
            return False
        if self._affinity is None:
            return True
        at_most = taken
        for row in rows:
            at_most |= row
        return self._affinity.lack(at_most) is None and self._leads_on((next_row, taken), ())

    def _leads_on(self, begun: _Begun, added: tuple[int, ...]) -> bool:
        """Say whether these places can be filled, and with some more offer all that is wanted."""
        key = (begun[0], self._multiset(members(begun[1])), self._multiset(added))
        if key in self._dead:
            return False
        if self._fillable(begun[0], added) and self._offers(begun, added):
            return True
        self._dead.add(key)
        return False

    def _fillable(self, next_row: int, places: tuple[int, ...]) -> bool:
        """Say whether distinct remaining rows can take all these places."""
        return can_match_all([self._takers[place] >> next_row for place in places])

    def _offers(self, begun: _Begun, added: tuple[int, ...]) -> bool:
        """Say whether the begun places, those added and some more offer all that is wanted."""
        next_row, chosen = begun
        for place in added:
            chosen |= 1 << place
        lack = self._affinity.lack(chosen) if self._affinity else None
        if lack is None:
            return True
        if lack.places is None or lack.places > len(self._rows) - next_row - len(added):
            return False
        return any(self._leads_on(begun, more) for more in self._extensions(lack, chosen, added))

    def _extensions(
        self, lack: Lack, chosen: Places, added: tuple[int, ...]
    ) -> list[tuple[int, ...]]:
        """Return the additions to try, the most helpful first, one of each kind of place."""
        by_kind: dict[int, int] = {}
        for place in sorted(lack.gains, key=lambda each: -lack.gains[each]):
            if not chosen >> place & 1:
                by_kind.setdefault(self._kinds[place], place)
        return [(*added, place) for place in by_kind.values()]

    def _multiset(self, places: Iterable[int]) -> tuple[int, ...]:
        """Return the kinds of these places in an order that does not depend on theirs."""
        return tuple(sorted(self._kinds[place] for place in places))
