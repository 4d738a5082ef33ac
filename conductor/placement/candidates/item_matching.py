"""Bipartite matching of items with places, repaired from an earlier one (Kuhn 1955; pure).

1. Keep the pairs of the earlier matching that still hold. O(p).
2. For every item without a place search an augmenting path depth first, moving others. O(n p) an
   item; in the search one item loses its place at a time.

Sets are stored by place (which items fit there), as the search keeps them; the fitter's matcher
(`models.hardware.fitting`) stores them by row and starts anew each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from models.bit_sets import set_bits


def matched(fits: Sequence[int], items: int, known: Mapping[int, int]) -> dict[int, int] | None:
    """Return a matching (place to item) of all of the items, or nothing where there is none.

    `known` is an earlier matching, kept as far as it still holds.
    """
    owners = {
        place: item
        for place, item in known.items()
        if items >> item & 1 and fits[place] >> item & 1
    }
    matched = sum(1 << item for item in owners.values())
    for item in set_bits(items & ~matched):
        if not _augment(fits, item, owners, set()):
            return None
    return owners


def _augment(fits: Sequence[int], item: int, owners: dict[int, int], seen: set[int]) -> bool:
    """Give an item a place along an augmenting path; changes `owners` and `seen`."""
    for place, number in enumerate(fits):
        if number >> item & 1 and place not in seen:
            seen.add(place)
            if place not in owners or _augment(fits, owners[place], owners, seen):
                owners[place] = item
                return True
    return False
