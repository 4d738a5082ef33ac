"""Whether a begun assignment of guest cells to host cells can still be completed."""

from collections.abc import Sequence
from typing import TypeAlias

from models.hardware.affinity import Affinity, Lack
from models.hardware.matching import Places, can_match_all, transposed

_Begun: TypeAlias = tuple[int, Places]


class Completion:
    """Answers `possible` for one guest on one host, remembering the dead ends it met.

    Two things are checked apart: that the remaining guest cells can all be placed, and that
    some places which offer the missing networks and devices can all be filled by them. A
    matching that covers both exists whenever each exists alone (Mendelsohn and Dulmage, 1958),
    and further cells never take away what is offered.
    """

    def __init__(self, rows: Sequence[Places], width: int, affinity: Affinity | None) -> None:
        self._rows = rows
        self._affinity = affinity
        self._takers = transposed(rows, width)
        offers = affinity.kinds(width) if affinity else [()] * width
        self._kinds = list(zip(offers, self._takers, strict=True))
        self._dead: set[object] = set()

    def possible(self, next_row: int, taken: Places) -> bool:
        """Say whether the rows from `next_row` on can be placed beside the taken places."""
        if not can_match_all([row & ~taken for row in self._rows[next_row:]]):
            return False
        return self._affinity is None or self._offers((next_row, taken), ())

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
        by_kind: dict[object, int] = {}
        for place in sorted(lack.gains, key=lambda each: -lack.gains[each]):
            if not chosen >> place & 1:
                by_kind.setdefault(self._kinds[place], place)
        return [(*added, place) for place in by_kind.values()]

    def _leads_on(self, begun: _Begun, added: tuple[int, ...]) -> bool:
        key = (begun, self._key(added))
        if key in self._dead:
            return False
        if self._fillable(begun[0], added) and self._offers(begun, added):
            return True
        self._dead.add(key)
        return False

    def _fillable(self, next_row: int, places: Sequence[int]) -> bool:
        """Say whether distinct remaining rows can take all these places."""
        return can_match_all([self._takers[place] >> next_row for place in places])

    def _key(self, places: Sequence[int]) -> object:
        counts: dict[object, int] = {}
        for place in places:
            counts[self._kinds[place]] = counts.get(self._kinds[place], 0) + 1
        return frozenset(counts.items())
