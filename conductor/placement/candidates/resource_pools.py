"""A resource pool: amounts of one class, and how much of a capacity they can fill (pure).

1. Suffix sums of the amounts: what all items from the n-th on request together. O(n), once.
2. Subset sums of the amounts from the n-th item on (the dynamic program of the subset-sum problem),
   kept while there are at most `SUMS_AT_MOST`. O(n s), once.
3. A capacity is rounded down to the largest subset sum: binary search, O(log s) a question. This
   bounds what bin packing can use of it; without the sums the bound is the capacity itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

SUMS_AT_MOST: Final = 256
"""How many subset sums are kept; where there are more, capacity is not rounded down."""


class ResourcePool:
    """What every item requests of one resource class; 0 where it requests none."""

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

    def within(self, capacity: int) -> int:
        """Return which items request no more than this capacity, as a bit mask."""
        return self._within[bisect_right(self._steps, capacity) - 1]

    def filled(self, capacity: int, first: int) -> int:
        """Return the most of this capacity that items from `first` on could fill."""
        sums = self._sums[first]
        return sums[bisect_right(sums, capacity) - 1] if sums else min(capacity, self.needs[first])

    def is_shared(self, first: int) -> bool:
        """Say whether at least two of the items from `first` on request some of it."""
        users = self.users >> first
        return users & users - 1 != 0

    def _sums_from(self, first: int) -> list[int]:
        sums = {0}
        for amount in self.amounts[first:]:
            sums |= {number + amount for number in sums}
            if len(sums) > SUMS_AT_MOST:
                return []
        return sorted(sums)
