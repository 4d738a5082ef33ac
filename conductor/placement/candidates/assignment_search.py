"""Which ways there are to put items into places, one by one as they are asked for (pure).

A depth-first search with a look ahead. Nothing is built but the way that is being tried, so that
the first ways cost what they are, however many there are in all. A branch is left as soon as

- an item has no place left, or an amount has not enough room in what is left of all places,
  counting only room that some of the items to come would fill exactly;
- items that must all be apart have no matching with places (augmented from the one before);
- marks or heads that are still owed cannot be paid any more;
- the same is left to do, up to the names of the places, as where there was no way before.

The last makes places that are alike, and items that are alike, cost as much as one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Final

from conductor.placement.candidates.item_matching import matched
from conductor.placement.candidates.resource_pools import Kind, bits

STEPS_AT_MOST: Final = 100_000
"""After so many steps without one more way the search ends: packing has no cheap exact answer."""

DEAD_AT_MOST: Final = 20_000
"""How many dead ends are remembered, some hundred bytes each."""

ITEMS_NOT_TOLD: Final = 2
"""With so few items left it costs less to look than to remember."""


@dataclass(frozen=True, slots=True)
class Item:
    """What needs a place: `places` (bit mask) have room for it alone, `takes` by kind of room.

    An item that `marks` pays with the marks of its place what is owed.
    """

    places: int
    takes: tuple[tuple[int, int], ...] = ()
    marks: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """Items, and `count` places: their room by kind and place, their marks, their parents.

    `owed` marks must be paid together by the places of the items that mark. No two items of
    `apart` (a bit mask) share a place. Of each of `families` (bit masks of items) one sits at
    the head: a place that has those of all the others at or below it.
    """

    count: int
    items: tuple[Item, ...]
    rooms: tuple[tuple[int, ...], ...] = ()
    marks: tuple[int, ...] = ()
    owed: int = 0
    apart: int = 0
    families: tuple[int, ...] = ()
    parents: tuple[int | None, ...] = ()


def ways(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Yield the place of every item, in the order of the items; no way comes twice.

    A search that takes `STEPS_AT_MOST` steps without finding one more way ends there.
    """
    if problem.items:
        search = _Search(problem)
        for places in search.ways():
            yield tuple(places[at] for at in search.back)


@dataclass(frozen=True, slots=True)
class _State:
    """What is left: items that fit by place, room by kind and place, owed marks and heads."""

    fits: tuple[int, ...]
    rooms: tuple[tuple[int, ...], ...]
    owed: int
    heads: tuple[tuple[int, int], ...] = ()
    """Place and members of families whose head nobody sits at yet."""

    pairs: Mapping[int, int] = field(default_factory=dict)
    """A matching of places with items that must be apart."""


class _Search:
    """The search for the ways of one problem; items are numbered anew, in the order of turns.

    A turn gives an item its place, or a family its head, just before its first member: every
    way has exactly one head of each family, so no way comes twice.
    """

    def __init__(self, problem: Problem) -> None:
        order = _order(problem)
        self.back = sorted(range(len(order)), key=order.__getitem__)
        self.items = [problem.items[item] for item in order]
        self.problem = problem
        self.places = range(problem.count)
        self.apart = self._renumbered(problem.apart)
        self.families = sorted(
            (self._renumbered(family) for family in problem.families),
            key=lambda family: family & -family,
        )
        self.marking = sum(1 << at for at, item in enumerate(self.items) if item.marks)
        self.all = (1 << len(order)) - 1
        self.kinds, self.rooms = _scarce(problem, self.items)
        self.takes = [
            [(at, kind.amounts[item]) for at, kind in enumerate(self.kinds) if kind.amounts[item]]
            for item in range(len(order))
        ]
        self.below = _below(problem.parents)
        self.bottom_up = sorted(self.places, key=lambda place: self.below[place].bit_count())
        self._dead: set[object] = set()
        self._columns: dict[object, int] = {}
        self._payable: dict[object, bool] = {}
        self._steps = 0

    def ways(self) -> Iterator[list[int]]:
        fits = tuple(
            sum(1 << at for at, item in enumerate(self.items) if item.places >> place & 1)
            for place in self.places
        )
        state = _State(fits, self.rooms, self.problem.owed)
        start = self._looked_ahead(state, 0, self.all, self.all)
        if start is not None:
            yield from self._from(start, 0, 0, [0] * len(self.items))

    def _from(
        self, state: _State, item: int, family: int, places: list[int]
    ) -> Iterator[list[int]]:
        """Yield the ways to go on from this item and family; `places` has the items before."""
        telling = len(self.items) - item > ITEMS_NOT_TOLD
        key = self._key(state, item, family) if telling and self._dead else None
        if key is not None and key in self._dead:
            return
        found = False
        if family < len(self.families) and self.families[family] >> item & 1:
            branches = self._with_heads(state, item, family, places)
        elif item + 1 < len(self.items):
            branches = self._with_places(state, item, family, places)
        else:
            branches = self._finished(state, item, places)
        for branch in branches:
            found, self._steps = True, 0
            yield branch
        if found or not telling:
            return
        if len(self._dead) < DEAD_AT_MOST and self._steps <= STEPS_AT_MOST:
            self._dead.add(key or self._key(state, item, family))

    def _with_heads(
        self, state: _State, item: int, family: int, places: list[int]
    ) -> Iterator[list[int]]:
        members = self.families[family]
        for head in self.places:
            if state.fits[head] & members and self._may_go_on():
                headed = self._headed(state, item, members, head)
                if headed is not None:
                    yield from self._from(headed, item, family + 1, places)

    def _with_places(
        self, state: _State, item: int, family: int, places: list[int]
    ) -> Iterator[list[int]]:
        for place in self.places:
            if state.fits[place] >> item & 1 and self._may_go_on():
                left = self._placed(state, item, place)
                if left is not None:
                    places[item] = place
                    yield from self._from(left, item + 1, family, places)

    def _finished(self, state: _State, item: int, places: list[int]) -> Iterator[list[int]]:
        """Yield the places of the last item that pay all that is still owed."""
        owed = state.owed if self.items[item].marks else 0
        if state.owed != owed:
            return
        for place in self.places:
            if not state.fits[place] >> item & 1 or owed & ~self.problem.marks[place]:
                continue
            if any(head != place or not members >> item & 1 for head, members in state.heads):
                continue
            if self._may_go_on():
                places[item] = place
                yield places

    def _headed(self, state: _State, first: int, members: int, head: int) -> _State | None:
        """Return what is left once this place is the head of a family, if it can be."""
        below = self.below[head]
        others = ~members
        fits = tuple(
            [
                number if below >> place & 1 else number & others
                for place, number in enumerate(state.fits)
            ]
        )
        heads = (*state.heads, (head, members))
        headed = _State(fits, state.rooms, state.owed, heads, state.pairs)
        return self._looked_ahead(headed, first, self.all, members)

    def _placed(self, state: _State, item: int, place: int) -> _State | None:
        """Return what is left once an item has this place, if all others can still be placed."""
        fits, rooms = list(state.fits), state.rooms
        if self.takes[item]:
            changed = list(rooms)
            for at, amount in self.takes[item]:
                row = list(changed[at])
                row[place] -= amount
                changed[at] = tuple(row)
                fits[place] &= self.kinds[at].within(row[place])
            rooms = tuple(changed)
        if self.apart >> item & 1:
            fits[place] &= ~self.apart
        owed, heads = state.owed, state.heads
        if owed and self.items[item].marks:
            owed &= ~self.problem.marks[place]
        if heads:
            heads = tuple(head for head in heads if head[0] != place or not head[1] >> item & 1)
        touched = 1 << item | state.fits[place] & ~fits[place]
        left = _State(tuple(fits), rooms, owed, heads, state.pairs)
        return self._looked_ahead(left, item + 1, touched, self.all)

    def _looked_ahead(self, state: _State, first: int, touched: int, among: int) -> _State | None:
        """Return the state, matched, or nothing where items from `first` on cannot be placed.

        Looked at is what `touched` items change; room only for those `among`.
        """
        coming = self.all >> first << first
        if reduce(or_, state.fits, 0) & coming != coming:
            return None
        if state.owed and self.marking & touched and not self._can_pay(state, coming):
            return None
        if any(not state.fits[place] & members & coming for place, members in state.heads):
            return None
        for at, kind in enumerate(self.kinds):
            if kind.users & touched and self._falls_short(state, at, first, among):
                return None
        if (self.apart & coming).bit_count() > 1:
            pairs = matched(state.fits, self.apart & coming, state.pairs)
            if pairs is None:
                return None
            return _State(state.fits, state.rooms, state.owed, state.heads, pairs)
        return state

    def _can_pay(self, state: _State, coming: int) -> bool:
        """Say whether each owed mark could be paid by an item of its own, or by one that pays many.

        An item pays at most as many as the best of its places.
        """
        marking = self.marking & coming
        key = (state.owed, tuple([fit & marking for fit in state.fits]))
        if key not in self._payable:
            slots: list[int] = []
            for item in bits(marking):
                paid = [
                    self.problem.marks[place] & state.owed
                    for place, number in enumerate(state.fits)
                    if number >> item & 1
                ]
                slots += [reduce(or_, paid, 0)] * max(number.bit_count() for number in paid)
            if len(self._payable) >= DEAD_AT_MOST:
                self._payable.clear()
            self._payable[key] = matched(slots, state.owed, {}) is not None
        return self._payable[key]

    def _falls_short(self, state: _State, at: int, first: int, among: int) -> bool:
        """Say whether all room left of a kind is less than what the items to come take of it."""
        kind = self.kinds[at]
        users = (kind.users & among) >> first << first
        if users & users - 1 == 0:
            return False
        left = kind.needs[first]
        if users != kind.users >> first << first:
            left = sum(kind.amounts[item] for item in bits(users))
        for place, room in enumerate(state.rooms[at]):
            if state.fits[place] & users:
                left -= kind.filled(room, first)
                if left <= 0:
                    return False
        return True

    def _key(self, state: _State, first: int, family: int) -> object:
        """Return what is left to do without the names of the places.

        Each place is the items that still fit there, what they could fill of its room, and what
        is owed that it pays; the order of the places does not matter to whether there is a way.
        As long as heads are to be chosen, each also is what is below it.
        """
        coming = self.all >> first << first
        shared = [
            (kind, row)
            for kind, row in zip(self.kinds, state.rooms, strict=True)
            if kind.is_shared(first)
        ]
        columns = [
            (
                number & coming,
                tuple([kind.filled(row[place], first) for kind, row in shared]),
                self.problem.marks[place] & state.owed if state.owed else 0,
                tuple([members for head, members in state.heads if head == place])
                if state.heads
                else (),
            )
            if number & coming
            else None
            for place, number in enumerate(state.fits)
        ]
        trees = family < len(self.families)
        return first, family, state.owed, self._nested(columns) if trees else self._flat(columns)

    def _flat(self, columns: Sequence[object]) -> object:
        number = self._columns.setdefault
        return tuple(sorted(number(column, len(self._columns)) for column in columns if column))

    def _nested(self, columns: Sequence[object]) -> object:
        """Return the columns as a forest, the children of each place in no order."""
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
        return sum(1 << self.back[item] for item in bits(mask))


def _order(problem: Problem) -> list[int]:
    """Return the items in the order of turns: few places first, then large ones.

    Families stay together, or what one of them cannot do would show only after the next; items
    that are alike come one after the other, so that what is left after them is alike too. Where
    so much is owed that every item that marks has to pay, these come first: few ways do.
    """
    payers = sum(item.marks for item in problem.items)
    first = payers <= problem.owed.bit_count()
    ease = [
        (not (first and entry.marks), *_ease(problem, item))
        for item, entry in enumerate(problem.items)
    ]
    keys = [(pair, 0, pair) for pair in ease]
    for number, members in reversed(list(enumerate(problem.families, 1))):
        hardest = min(ease[item] for item in bits(members))
        for item in bits(members):
            keys[item] = (hardest, number, ease[item])
    return sorted(range(len(keys)), key=keys.__getitem__)


def _ease(problem: Problem, item: int) -> tuple[int, float, int, tuple[tuple[int, int], ...]]:
    asked = problem.items[item]
    share = sum(amount / max(1, *problem.rooms[kind]) for kind, amount in asked.takes)
    return asked.places.bit_count(), -share, asked.places, asked.takes


def _scarce(
    problem: Problem, items: Sequence[Item]
) -> tuple[list[Kind], tuple[tuple[int, ...], ...]]:
    """Return the kinds of room that may run out, and their room by place.

    Where every place that is asked about has room for all, a kind needs no watching.
    """
    kinds, rooms = [], []
    for at, row in enumerate(problem.rooms):
        amounts = [dict(item.takes).get(at, 0) for item in items]
        users = [item.places for item, amount in zip(items, amounts, strict=True) if amount]
        scarce = any(row[place] < sum(amounts) for place in bits(reduce(or_, users, 0)))
        if len(users) > 1 and scarce:
            kinds.append(Kind(amounts))
            rooms.append(row)
    return kinds, tuple(rooms)


def _below(parents: Sequence[int | None]) -> list[int]:
    """Return for every place the bit mask of itself and all below it."""
    below = [1 << place for place in range(len(parents))]
    for place, parent in enumerate(parents):
        above = parent
        while above is not None:
            below[above] |= 1 << place
            above = parents[above]
    return below
