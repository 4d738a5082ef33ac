"""Several small counters in one integer, so that all are added and compared at once.

The SWAR technique (SIMD within a register): each counter has a field whose top bit, the guard,
is never part of a count. A subtraction sets all guards first; a guard that is still set afterwards
says that its counter sufficed, and no borrow ever leaves a field. Every operation is a few
instructions on one integer, whatever the number of counters.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

Counts: TypeAlias = int
"""Counters packed by one `PackedCounters`; those of another have other fields."""


@dataclass(frozen=True, slots=True)
class PackedCounters:
    """The layout of counters of `width` bits each, of which one is the guard."""

    width: int
    guards: int

    @staticmethod
    def of(how_many: int, most: int) -> "PackedCounters":
        """Return the layout of so many counters, each for values up to `most`."""
        width = most.bit_length() + 1
        return PackedCounters(
            width, sum(1 << width * (number + 1) - 1 for number in range(how_many))
        )

    def packed(self, values: Iterable[int]) -> Counts:
        """Return these values as counters, none above `most`."""
        return sum(value << self.width * number for number, value in enumerate(values))

    def less(self, counts: Counts, amounts: Counts) -> Counts:
        """Return what is left of each counter, 0 where the amount is the greater."""
        # 1. With its guard set no field borrows from the next one.
        rest = (counts | self.guards) - amounts
        # 2. Guards that are left mark the fields that sufficed.
        enough = rest & self.guards
        # 3. `enough - (enough >> width - 1)` is all ones below each such guard, 0 elsewhere.
        return rest & (enough - (enough >> self.width - 1))

    def greater(self, one: Counts, other: Counts) -> Counts:
        """Return the greater of the two values of each counter."""
        return one + self.less(other, one)

    def suffice(self, counts: Counts, needed: Counts) -> bool:
        """Say whether no counter is below what is needed of it."""
        return ((counts | self.guards) - needed) & self.guards == self.guards
