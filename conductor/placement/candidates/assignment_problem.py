"""An assignment problem as values, and what the search needs to know before it begins (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from conductor.placement.candidates.resource_pools import ResourcePool
from models.bit_sets import set_bits


@dataclass(frozen=True, slots=True)
class Item:
    """What needs a place: `places` (bit mask) have capacity for it alone.

    `requests` are pairs of pool and amount. The place of an item that `covers` contributes its
    traits to those that are required.
    """

    places: int
    requests: tuple[tuple[int, int], ...] = ()
    covers: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """Items, and `count` places: free capacity by pool and place, traits and parent of each.

    The traits `uncovered` (a bit mask) must be covered together by the places of the items that
    cover. No two items of `apart` (a bit mask) share a place. Of each of `subtrees` (bit masks of
    items) one item is at the head: its place is an ancestor of, or is, those of all the others.
    """

    count: int
    items: tuple[Item, ...]
    free: tuple[tuple[int, ...], ...] = ()
    traits: tuple[int, ...] = ()
    uncovered: int = 0
    apart: int = 0
    subtrees: tuple[int, ...] = ()
    parents: tuple[int | None, ...] = ()


def search_order(problem: Problem) -> list[int]:
    """Return the items in search order: most constrained first (few places, then large amounts).

    Members of a subtree stay together, or a failure of one would show only after the next; items
    that are alike follow each other, so that the states after them are alike too. Where every
    item that covers is needed to cover the required traits, these come first.
    """
    coverers = sum(item.covers for item in problem.items)
    first = coverers <= problem.uncovered.bit_count()
    ease = [
        (not (first and entry.covers), *_ease(problem, item))
        for item, entry in enumerate(problem.items)
    ]
    keys = [(pair, 0, pair) for pair in ease]
    for number, members in reversed(list(enumerate(problem.subtrees, 1))):
        hardest = min(ease[item] for item in set_bits(members))
        for item in set_bits(members):
            keys[item] = (hardest, number, ease[item])
    return sorted(range(len(keys)), key=keys.__getitem__)


def _ease(problem: Problem, item: int) -> tuple[int, float, int, tuple[tuple[int, int], ...]]:
    chosen = problem.items[item]
    share = sum(amount / max(1, *problem.free[pool]) for pool, amount in chosen.requests)
    return chosen.places.bit_count(), -share, chosen.places, chosen.requests


def scarce_pools(
    problem: Problem, items: Sequence[Item]
) -> tuple[list[ResourcePool], tuple[tuple[int, ...], ...]]:
    """Return the pools that may run out, and their free capacity by place.

    Where every place in question has capacity for all items, a pool constrains nothing.
    """
    pools, free = [], []
    for at, row in enumerate(problem.free):
        amounts = [dict(item.requests).get(at, 0) for item in items]
        users = [item.places for item, amount in zip(items, amounts, strict=True) if amount]
        scarce = any(row[place] < sum(amounts) for place in set_bits(reduce(or_, users, 0)))
        if len(users) > 1 and scarce:
            pools.append(ResourcePool(amounts))
            free.append(row)
    return pools, tuple(free)


def descendants_of(parents: Sequence[int | None]) -> list[int]:
    """Return for every place the bit mask of itself and all below it."""
    below = [1 << place for place in range(len(parents))]
    for place, parent in enumerate(parents):
        above = parent
        while above is not None:
            below[above] |= 1 << place
            above = parents[above]
    return below
