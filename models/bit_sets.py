"""Sets of small numbers as integers: bit n is set when n is a member."""

from collections.abc import Iterator


def set_bits(mask: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set, in ascending order; none negative.

    One step a member, whatever the width.
    """
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
