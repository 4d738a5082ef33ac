"""Giving each item a place of its own, where that can be done (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conductor.placement.candidates.resource_pools import bits


def matched(fits: Sequence[int], items: int, known: Mapping[int, int]) -> dict[int, int] | None:
    """Return a place to item matching of all of the items, or nothing where there is none.

    What is known of an earlier one is taken over as far as it still holds.
    """
    owners = {
        place: item
        for place, item in known.items()
        if items >> item & 1 and fits[place] >> item & 1
    }
    matched = sum(1 << item for item in owners.values())
    for item in bits(items & ~matched):
        if not _augment(fits, item, owners, set()):
            return None
    return owners


def _augment(fits: Sequence[int], item: int, owners: dict[int, int], seen: set[int]) -> bool:
    """Give an item a place, moving others; `owners` and `seen` are the caller's to be changed."""
    for place, number in enumerate(fits):
        if number >> item & 1 and place not in seen:
            seen.add(place)
            if place not in owners or _augment(fits, owners[place], owners, seen):
                owners[place] = item
                return True
    return False
