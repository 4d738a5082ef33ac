"""Assigning items to places under capacity, exclusion and trait constraints, lazily (pure).

Depth-first backtracking search with forward checking, and nogoods that are recorded up to
symmetry: vector bin packing with side constraints, which is NP-hard, hence the limit on steps.
With n items, p places and r resource pools:

1. Order the items: fewest places first, then largest share of capacity. O(n log n), once.
2. Choose a head for each same-subtree group, then a place for each item, both by brute force over
   the places that are left: p branches at most.
3. Forward checking after every choice; a branch is left as soon as
   a. an item has no place left: O(p);
   b. required traits cannot all be covered any more: a bipartite matching, memoized;
   c. a head has no member left that could be placed on it: O(p);
   d. a pool's free capacity, each place rounded down to a sum of amounts to come (subset sums, at
      most `SUMS_AT_MOST`), is less than what is still to be placed: O(p log s) a pool;
   e. items that must be apart have no bipartite matching with the places: augmented from the
      matching before, O(n p) for one item that lost its place.
4. A state from which no assignment was found is recorded without the names of places (a canonical
   form of the places' columns, O(p log p + r p)); the same state up to a permutation of places is
   not searched again, so places that are alike, and items that are alike, cost as much as one.

Nothing is built but the branch that is being tried: the first assignments cost what they are,
however many there are in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Final

from conductor.placement.candidates.assignment_problem import (
    Problem,
    descendants_of,
    scarce_pools,
    search_order,
)
from conductor.placement.candidates.item_matching import matched
from models.bit_sets import set_bits

STEPS_AT_MOST: Final = 100_000
"""Steps without a further assignment after which the search gives up: packing is NP-hard."""

FAILED_AT_MOST: Final = 20_000
"""How many nogoods are recorded, some hundred bytes each."""

TOO_FEW_TO_REMEMBER: Final = 2
"""With so few items left it costs less to search than to record."""


def assignments(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Yield the place of every item, in the order of the items; no assignment comes twice.

    A search that takes `STEPS_AT_MOST` steps without a further assignment ends there.
    """
    if problem.items:
        search = _Search(problem)
        for places in search.assignments():
            yield tuple(places[at] for at in search.back)


@dataclass(frozen=True, slots=True)
class _State:
    """What is left: fits by place, free capacity, uncovered traits, heads without an item."""

    fits: tuple[int, ...]
    free: tuple[tuple[int, ...], ...]
    uncovered: int
    heads: tuple[tuple[int, int], ...] = ()
    """Place and members of the subtrees whose head has no item yet."""

    pairs: Mapping[int, int] = field(default_factory=dict)
    """A matching of places with items that must be apart."""


class _Search:
    """The search for the assignments of one problem; items are renumbered in search order.

    A subtree's head is chosen just before the place of its first member: every assignment has
    exactly one head of each subtree, so none comes twice.
    """

    def __init__(self, problem: Problem) -> None:
        order = search_order(problem)
        self.back = sorted(range(len(order)), key=order.__getitem__)
        self.items = [problem.items[item] for item in order]
        self.problem = problem
        self.places = range(problem.count)
        self.apart = self._renumbered(problem.apart)
        self.subtrees = sorted(
            (self._renumbered(subtree) for subtree in problem.subtrees),
            key=lambda subtree: subtree & -subtree,
        )
        self.covering = sum(1 << at for at, item in enumerate(self.items) if item.covers)
        self.all = (1 << len(order)) - 1
        self.pools, self.free = scarce_pools(problem, self.items)
        self.requests = [
            [(at, pool.amounts[item]) for at, pool in enumerate(self.pools) if pool.amounts[item]]
            for item in range(len(order))
        ]
        self.below = descendants_of(problem.parents)
        self.bottom_up = sorted(self.places, key=lambda place: self.below[place].bit_count())
        self._failed: set[object] = set()
        self._columns: dict[object, int] = {}
        self._coverable: dict[object, bool] = {}
        self._steps = 0

    def assignments(self) -> Iterator[list[int]]:
        fits = tuple(
            sum(1 << at for at, item in enumerate(self.items) if item.places >> place & 1)
            for place in self.places
        )
        state = _State(fits, self.free, self.problem.uncovered)
        start = self._look_ahead(state, 0, self.all, self.all)
        if start is not None:
            yield from self._from(start, 0, 0, [0] * len(self.items))

    def _from(
        self, state: _State, item: int, subtree: int, places: list[int]
    ) -> Iterator[list[int]]:
        """Yield the assignments from this item and subtree on; `places` has the items before."""
        remembers = len(self.items) - item > TOO_FEW_TO_REMEMBER
        key = self._key(state, item, subtree) if remembers and self._failed else None
        if key is not None and key in self._failed:
            return
        found = False
        if subtree < len(self.subtrees) and self.subtrees[subtree] >> item & 1:
            branches = self._with_heads(state, item, subtree, places)
        elif item + 1 < len(self.items):
            branches = self._with_places(state, item, subtree, places)
        else:
            branches = self._finished(state, item, places)
        for branch in branches:
            found, self._steps = True, 0
            yield branch
        if found or not remembers:
            return
        if len(self._failed) < FAILED_AT_MOST and self._steps <= STEPS_AT_MOST:
            self._failed.add(key or self._key(state, item, subtree))

    def _with_heads(
        self, state: _State, item: int, subtree: int, places: list[int]
    ) -> Iterator[list[int]]:
        members = self.subtrees[subtree]
        for head in self.places:
            if state.fits[head] & members and self._may_go_on():
                headed = self._choose_head(state, item, members, head)
                if headed is not None:
                    yield from self._from(headed, item, subtree + 1, places)

    def _with_places(
        self, state: _State, item: int, subtree: int, places: list[int]
    ) -> Iterator[list[int]]:
        for place in self.places:
            if state.fits[place] >> item & 1 and self._may_go_on():
                left = self._place_item(state, item, place)
                if left is not None:
                    places[item] = place
                    yield from self._from(left, item + 1, subtree, places)

    def _finished(self, state: _State, item: int, places: list[int]) -> Iterator[list[int]]:
        """Yield the places of the last item that cover every trait still uncovered."""
        uncovered = state.uncovered if self.items[item].covers else 0
        if state.uncovered != uncovered:
            return
        for place in self.places:
            if not state.fits[place] >> item & 1 or uncovered & ~self.problem.traits[place]:
                continue
            if any(head != place or not members >> item & 1 for head, members in state.heads):
                continue
            if self._may_go_on():
                places[item] = place
                yield places

    def _choose_head(self, state: _State, first: int, members: int, head: int) -> _State | None:
        """Return the state once this place is the head of a subtree, or nothing if it cannot be."""
        below = self.below[head]
        others = ~members
        fits = tuple(
            [
                number if below >> place & 1 else number & others
                for place, number in enumerate(state.fits)
            ]
        )
        heads = (*state.heads, (head, members))
        headed = _State(fits, state.free, state.uncovered, heads, state.pairs)
        return self._look_ahead(headed, first, self.all, members)

    def _place_item(self, state: _State, item: int, place: int) -> _State | None:
        """Return the state once an item has this place, or nothing where others lose all places."""
        fits, free = list(state.fits), state.free
        if self.requests[item]:
            changed = list(free)
            for at, amount in self.requests[item]:
                row = list(changed[at])
                row[place] -= amount
                changed[at] = tuple(row)
                fits[place] &= self.pools[at].within(row[place])
            free = tuple(changed)
        if self.apart >> item & 1:
            fits[place] &= ~self.apart
        uncovered, heads = state.uncovered, state.heads
        if uncovered and self.items[item].covers:
            uncovered &= ~self.problem.traits[place]
        if heads:
            heads = tuple(head for head in heads if head[0] != place or not head[1] >> item & 1)
        touched = 1 << item | state.fits[place] & ~fits[place]
        left = _State(tuple(fits), free, uncovered, heads, state.pairs)
        return self._look_ahead(left, item + 1, touched, self.all)

    def _look_ahead(self, state: _State, first: int, touched: int, among: int) -> _State | None:
        """Forward checking: the state with its matching, or nothing where a branch must fail.

        Only constraints of `touched` items are checked, capacity only for the items `among`.
        """
        coming = self.all >> first << first
        # a. Every item to come has a place. O(p).
        if reduce(or_, state.fits, 0) & coming != coming:
            return None
        # b. Required traits can be covered: bipartite matching, memoized by what it depends on.
        if state.uncovered and self.covering & touched and not self._can_cover(state, coming):
            return None
        # c. Every head that is chosen can have a member. O(p).
        if any(not state.fits[place] & members & coming for place, members in state.heads):
            return None
        # d. No pool runs out: bound by subset sums. O(p log s) a pool.
        for at, pool in enumerate(self.pools):
            if pool.users & touched and self._falls_short(state, at, first, among):
                return None
        # e. Items that must be apart have places of their own: one augmenting path an item. O(n p).
        if (self.apart & coming).bit_count() > 1:
            pairs = matched(state.fits, self.apart & coming, state.pairs)
            if pairs is None:
                return None
            return _State(state.fits, state.free, state.uncovered, state.heads, pairs)
        return state

    def _can_cover(self, state: _State, coming: int) -> bool:
        """Say whether the items to come could cover the uncovered traits: a necessary condition.

        A bipartite matching of traits with slots: an item has as many slots as the best of its
        places has uncovered traits, and each slot may cover any that one of its places has.
        """
        covering = self.covering & coming
        key = (state.uncovered, tuple([fit & covering for fit in state.fits]))
        if key not in self._coverable:
            slots: list[int] = []
            for item in set_bits(covering):
                covered = [
                    self.problem.traits[place] & state.uncovered
                    for place, number in enumerate(state.fits)
                    if number >> item & 1
                ]
                slots += [reduce(or_, covered, 0)] * max(number.bit_count() for number in covered)
            if len(self._coverable) >= FAILED_AT_MOST:
                self._coverable.clear()
            self._coverable[key] = matched(slots, state.uncovered, {}) is not None
        return self._coverable[key]

    def _falls_short(self, state: _State, at: int, first: int, among: int) -> bool:
        """Say whether a pool has less free capacity than the items to come request of it."""
        pool = self.pools[at]
        users = (pool.users & among) >> first << first
        if users & users - 1 == 0:
            return False
        left = pool.needs[first]
        if users != pool.users >> first << first:
            left = sum(pool.amounts[item] for item in set_bits(users))
        for place, capacity in enumerate(state.free[at]):
            if state.fits[place] & users:
                left -= pool.filled(capacity, first)
                if left <= 0:
                    return False
        return True

    def _key(self, state: _State, first: int, subtree: int) -> object:
        """Return the state in a canonical form, equal for states that differ by a permutation.

        A place is the items that still fit there, what they could fill of its capacity, and the
        uncovered traits that it has. As long as heads are to be chosen, it is also what is below.
        """
        coming = self.all >> first << first
        shared = [
            (pool, row)
            for pool, row in zip(self.pools, state.free, strict=True)
            if pool.is_shared(first)
        ]
        columns = [
            (
                number & coming,
                tuple([pool.filled(row[place], first) for pool, row in shared]),
                self.problem.traits[place] & state.uncovered if state.uncovered else 0,
                tuple([members for head, members in state.heads if head == place])
                if state.heads
                else (),
            )
            if number & coming
            else None
            for place, number in enumerate(state.fits)
        ]
        trees = subtree < len(self.subtrees)
        return (
            first,
            subtree,
            state.uncovered,
            self._nested(columns) if trees else self._flat(columns),
        )

    def _flat(self, columns: Sequence[object]) -> object:
        number = self._columns.setdefault
        return tuple(sorted(number(column, len(self._columns)) for column in columns if column))

    def _nested(self, columns: Sequence[object]) -> object:
        """Return the columns as trees in canonical form (AHU): children in any order are equal."""
        parents, number = self.problem.parents, self._columns.setdefault
        children: list[list[int]] = [[] for _ in columns]
        roots: list[int] = []
        for place in self.bottom_up:
            column = (columns[place], tuple(sorted(children[place])))
            parent = parents[place]
            (roots if parent is None else children[parent]).append(
                number(column, len(self._columns))
            )
        return tuple(sorted(roots))

    def _may_go_on(self) -> bool:
        self._steps += 1
        return self._steps <= STEPS_AT_MOST

    def _renumbered(self, mask: int) -> int:
        return sum(1 << self.back[item] for item in set_bits(mask))
