"""One kind of room that may run out, and what the items to come can fill of it (pure)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

SUMS_AT_MOST: Final = 256
"""How many sums of amounts room is rounded down to; where there are more it is not rounded."""


def bits(mask: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set, in ascending order."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Kind:
    """What every item takes of one kind of room; 0 where it takes none."""

    def __init__(self, amounts: Sequence[int]) -> None:
        self.amounts = amounts
        self.users = sum(1 << item for item, amount in enumerate(amounts) if amount)
        self.needs = [sum(amounts[item:]) for item in range(len(amounts) + 1)]
        self._sums = [self._sums_from(item) for item in range(len(amounts) + 1)]
        self._steps = sorted({0, *amounts})
        self._within = [
            sum(1 << item for item, amount in enumerate(amounts) if amount <= step)
            for step in self._steps
        ]

    def within(self, room: int) -> int:
        """Return which items take no more than this room, as a bit mask."""
        return self._within[bisect_right(self._steps, room) - 1]

    def filled(self, room: int, first: int) -> int:
        """Return the most of this room that items from `first` on could fill."""
        sums = self._sums[first]
        return sums[bisect_right(sums, room) - 1] if sums else min(room, self.needs[first])

    def is_shared(self, first: int) -> bool:
        """Say whether at least two of the items from `first` on take of it."""
        users = self.users >> first
        return users & users - 1 != 0

    def _sums_from(self, first: int) -> list[int]:
        sums = {0}
        for amount in self.amounts[first:]:
            sums |= {number + amount for number in sums}
            if len(sums) > SUMS_AT_MOST:
                return []
        return sorted(sums)
