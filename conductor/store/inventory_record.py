"""How much of a resource class a provider has, and how much of it one claim can take."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Inventory:
    """How much of one resource class a provider has: capacity is (total - reserved) * ratio.

    One claim takes from `min_unit` to `max_unit` (absent: as much as there is), in whole steps
    of `step_size`. A ratio lets many share and makes nothing larger: of what has a size of its
    own, `max_unit` says so.
    """

    total: int
    reserved: int = 0
    ratio: float = 1.0
    min_unit: int = 1
    max_unit: int | None = None
    step_size: int = 1

    @property
    def capacity(self) -> int:
        """What can be claimed in all, rounded down, never negative.

        The ratio counts as the decimal number it is written as: 100 at 1.15 are 115, which
        binary floating point makes 114.
        """
        return _times(self.total - self.reserved, self.ratio)

    @property
    def most(self) -> int:
        """What one claim can take at most, were nothing in use."""
        return self.capacity if self.max_unit is None else min(self.capacity, self.max_unit)

    def takes(self, amount: int) -> bool:
        """Say whether a claim may be of this size, were there enough: `most` says how much is."""
        return amount >= self.min_unit and amount % self.step_size == 0


@lru_cache(maxsize=4096)
def _times(amount: int, ratio: float) -> int:
    return max(0, int(amount * Fraction(repr(ratio))))
