"""Several small counters in one integer, so that all are added and compared at once.

Each counter has a field of its own whose top bit, the guard, is never part of a count. A
subtraction sets all guards first and sees from each afterwards whether its counter sufficed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

Counts: TypeAlias = int
"""Counters packed by one `Tallies`; those of another mean something else."""


@dataclass(frozen=True, slots=True)
class Tallies:
    """Counters of `width` bits each, of which one is the guard."""

    width: int
    guards: int

    @staticmethod
    def of(how_many: int, most: int) -> "Tallies":
        """Return so many counters, each for values up to `most`."""
        width = most.bit_length() + 1
        return Tallies(width, sum(1 << width * (number + 1) - 1 for number in range(how_many)))

    def packed(self, values: Iterable[int]) -> Counts:
        """Return these values as counters, none above `most`."""
        return sum(value << self.width * place for place, value in enumerate(values))

    def less(self, counts: Counts, taken: Counts) -> Counts:
        """Return what is left of each counter, 0 where more is taken than there is."""
        rest = (counts | self.guards) - taken
        enough = rest & self.guards
        return rest & (enough - (enough >> self.width - 1))

    def greater(self, one: Counts, other: Counts) -> Counts:
        """Return the greater of the two values of each counter."""
        return one + self.less(other, one)

    def suffice(self, counts: Counts, needed: Counts) -> bool:
        """Say whether no counter is below what is needed of it."""
        return ((counts | self.guards) - needed) & self.guards == self.guards
