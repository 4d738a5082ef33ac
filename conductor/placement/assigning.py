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

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Final

STEPS_AT_MOST: Final = 100_000
"""After so many steps without one more way the search ends: packing has no cheap exact answer."""

DEAD_AT_MOST: Final = 20_000
"""How many dead ends are remembered, some hundred bytes each."""

SUMS_AT_MOST: Final = 256
"""How many sums of amounts room is rounded down to; where there are more it is not rounded."""


@dataclass(frozen=True, slots=True)
class Item:
    """What needs a place: `places` is a bit mask, `takes` are amounts by kind of room.

    An item that `marks` adds the marks of its place to those that are owed.
    """

    places: int
    takes: tuple[tuple[int, int], ...] = ()
    marks: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """Items of which one sits at the head: a place that has all the others' at or below it."""

    members: int


@dataclass(frozen=True, slots=True)
class Problem:
    """Items, and `count` places: their room by kind, their marks, and what is below them.

    `owed` marks must be met together by the places of the items that mark. No two items of
    `apart` (a bit mask) share a place.
    """

    count: int
    items: tuple[Item, ...]
    rooms: tuple[tuple[int, ...], ...] = ()
    marks: tuple[int, ...] = ()
    owed: int = 0
    apart: int = 0
    families: tuple[Family, ...] = ()
    below: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _State:
    """What is left: items that fit by place, room by kind and place, owed marks and heads."""

    fits: tuple[int, ...]
    rooms: tuple[tuple[int, ...], ...]
    owed: int
    heads: tuple[tuple[int, int], ...] = ()
    """Place and members of families whose head nobody sits at yet."""

    pairs: dict[int, int] = field(default_factory=dict)
    """A matching of items that must be apart with places: item to place."""


def ways(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Yield the place of every item, in the order of the items; no way comes twice.

    A search that takes `STEPS_AT_MOST` steps without finding one more way ends there.
    """
    if not problem.items:
        return
    search = _Search(problem)
    for places in search.ways():
        yield tuple(places[at] for at in search.back)


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class _Kind:
    """One kind of room that may run out, and what items take of it, by item in search order."""

    def __init__(self, amounts: Sequence[int]) -> None:
        self.amounts = amounts
        self.users = sum(1 << item for item, amount in enumerate(amounts) if amount)
        self.needs = [sum(amounts[item:]) for item in range(len(amounts) + 1)]
        self.sums = [self._sums_from(item) for item in range(len(amounts) + 1)]
        self._steps = sorted({0, *amounts})
        self._within = [
            sum(1 << item for item, amount in enumerate(amounts) if amount <= step)
            for step in self._steps
        ]

    def within(self, room: int) -> int:
        """Return which items take no more than this room, as a bit mask."""
        return self._within[bisect_right(self._steps, room) - 1]

    def filled(self, room: int, first: int) -> int:
        """Return the most of this room that items from `first` on could fill."""
        sums = self.sums[first]
        return sums[bisect_right(sums, room) - 1] if sums else min(room, self.needs[first])

    def is_shared(self, first: int) -> bool:
        """Say whether at least two of the items from `first` on take of it."""
        return (self.users >> first).bit_count() > 1

    def _sums_from(self, first: int) -> list[int]:
        sums = {0}
        for amount in self.amounts[first:]:
            sums |= {each + amount for each in sums}
            if len(sums) > SUMS_AT_MOST:
                return []
        return sorted(sums)


class _Search:
    """The search for the ways of one problem; items are numbered anew, the hardest first."""

    def __init__(self, problem: Problem) -> None:
        order = sorted(range(len(problem.items)), key=lambda item: _ease(problem, item))
        self.back = sorted(range(len(order)), key=order.__getitem__)
        self.items = [problem.items[item] for item in order]
        self.problem = problem
        self.count = problem.count
        self.apart = self._renumbered(problem.apart)
        self.families = [self._renumbered(each.members) for each in problem.families]
        self.marking = sum(1 << at for at, item in enumerate(self.items) if item.marks)
        self.all = (1 << len(order)) - 1
        self.kinds, self.rooms = self._scarce()
        self.takes = [
            [(at, kind.amounts[item]) for at, kind in enumerate(self.kinds) if kind.amounts[item]]
            for item in range(len(order))
        ]
        self._dead: set[object] = set()
        self._columns: dict[object, int] = {}
        self._steps = 0

    def ways(self) -> Iterator[list[int]]:
        fits = tuple(
            sum(1 << at for at, item in enumerate(self.items) if item.places >> place & 1)
            for place in range(self.count)
        )
        start = self._looked_ahead(_State(fits, self.rooms, self.problem.owed), 0)
        if start is not None:
            yield from self._with_heads(start, 0)

    def _with_heads(self, state: _State, family: int) -> Iterator[list[int]]:
        """Choose the heads first: every way has exactly one of each family, so none comes twice."""
        if family == len(self.families):
            yield from self._from(state, 0, [0] * len(self.items))
            return
        key = (family, state.fits, state.heads)
        if key in self._dead:
            return
        found = False
        for place in range(self.count):
            headed = self._headed(state, self.families[family], place)
            if headed is not None:
                for places in self._with_heads(headed, family + 1):
                    found = True
                    yield places
        if not found:
            self._bury(key)

    def _headed(self, state: _State, members: int, head: int) -> _State | None:
        below = self.problem.below[head]
        if not state.fits[head] & members or self._is_spent():
            return None
        fits = tuple(
            each if below >> place & 1 else each & ~members for place, each in enumerate(state.fits)
        )
        heads = (*state.heads, (head, members))
        return self._looked_ahead(_State(fits, state.rooms, state.owed, heads, state.pairs), 0)

    def _from(self, state: _State, item: int, places: list[int]) -> Iterator[list[int]]:
        """Yield the ways to place this item and those after it; `places` has those before."""
        last = item + 1 == len(self.items)
        key = None if last else self._key(state, item)
        if key is not None and key in self._dead:
            return
        found = False
        for place in range(self.count):
            if not state.fits[place] >> item & 1:
                continue
            if self._is_spent():
                return
            left = self._looked_ahead(self._placed(state, item, place), item + 1)
            if left is None:
                continue
            here = [*places[:item], place, *places[item + 1 :]]
            for each in (here,) if last else self._from(left, item + 1, here):
                found, self._steps = True, 0
                yield each
        if key is not None and not found:
            self._bury(key)

    def _placed(self, state: _State, item: int, place: int) -> _State:
        """Return what is left once an item has this place."""
        fits, rooms = list(state.fits), list(state.rooms)
        for at, amount in self.takes[item]:
            row = list(rooms[at])
            row[place] -= amount
            rooms[at] = tuple(row)
            fits[place] &= self.kinds[at].within(row[place])
        if self.apart >> item & 1:
            fits[place] &= ~self.apart
        owed = state.owed
        if self.items[item].marks:
            owed &= ~self.problem.marks[place]
        heads = state.heads
        if heads:
            heads = tuple(each for each in heads if not (each[0] == place and each[1] >> item & 1))
        return _State(tuple(fits), tuple(rooms), owed, heads, state.pairs)

    def _looked_ahead(self, state: _State, first: int) -> _State | None:
        """Return the state, matched, or nothing where items from `first` on cannot be placed."""
        coming = self.all >> first << first
        if reduce(or_, state.fits, 0) & coming != coming:
            return None
        if state.owed and state.owed & ~self._payable(state, coming):
            return None
        if any(not state.fits[place] & members & coming for place, members in state.heads):
            return None
        if any(self._falls_short(state, at, first) for at in range(len(self.kinds))):
            return None
        if (self.apart & coming).bit_count() > 1:
            pairs = self._matched(state, coming)
            if pairs is None:
                return None
            return _State(state.fits, state.rooms, state.owed, state.heads, pairs)
        return state

    def _payable(self, state: _State, coming: int) -> int:
        marking = self.marking & coming
        marks = self.problem.marks
        return reduce(or_, (marks[at] for at, each in enumerate(state.fits) if each & marking), 0)

    def _falls_short(self, state: _State, at: int, first: int) -> bool:
        """Say whether all room left of a kind is less than what the items to come take of it."""
        kind = self.kinds[at]
        if not kind.is_shared(first):
            return False
        users = kind.users >> first << first
        left = kind.needs[first]
        for place, room in enumerate(state.rooms[at]):
            if state.fits[place] & users:
                left -= kind.filled(room, first)
                if left <= 0:
                    return False
        return True

    def _matched(self, state: _State, coming: int) -> dict[int, int] | None:
        """Return a matching of all items to come that must be apart, or nothing if there is none.

        That of the state before is taken over as far as it still holds.
        """
        pairs = {
            item: place
            for item, place in state.pairs.items()
            if coming >> item & 1 and state.fits[place] >> item & 1
        }
        owners = {place: item for item, place in pairs.items()}
        for item in _bits(self.apart & coming):
            if item not in pairs and not _augment(state.fits, item, owners, set()):
                return None
        return {item: place for place, item in owners.items()}

    def _key(self, state: _State, first: int) -> object:
        """Return what is left to do without the names of the places.

        Each place is the items that still fit there, what they could fill of its room, and what
        is owed that it pays; the order of the places does not matter to whether there is a way.
        """
        coming = self.all >> first << first
        shared = [
            (kind, row)
            for kind, row in zip(self.kinds, state.rooms, strict=True)
            if kind.is_shared(first)
        ]
        owed = state.owed
        columns = []
        for place, each in enumerate(state.fits):
            fits = each & coming
            if not fits:
                continue
            column = (
                fits,
                tuple(kind.filled(row[place], first) for kind, row in shared),
                self.problem.marks[place] & owed if owed else 0,
                tuple(members for head, members in state.heads if head == place),
            )
            columns.append(self._columns.setdefault(column, len(self._columns)))
        return first, owed, tuple(sorted(columns))

    def _bury(self, key: object) -> None:
        if len(self._dead) < DEAD_AT_MOST and not self._is_over():
            self._dead.add(key)

    def _is_spent(self) -> bool:
        self._steps += 1
        return self._is_over()

    def _is_over(self) -> bool:
        return self._steps > STEPS_AT_MOST

    def _scarce(self) -> tuple[list[_Kind], tuple[tuple[int, ...], ...]]:
        """Return the kinds of room that may run out, and their room by place.

        Where every place that is asked about has room for all, a kind needs no watching.
        """
        kinds, rooms = [], []
        for at, row in enumerate(self.problem.rooms):
            amounts = [dict(item.takes).get(at, 0) for item in self.items]
            total = sum(amounts)
            users = [item.places for item in self.items if dict(item.takes).get(at)]
            if len(users) > 1 and any(row[place] < total for place in _bits(reduce(or_, users))):
                kinds.append(_Kind(amounts))
                rooms.append(row)
        return kinds, tuple(rooms)

    def _renumbered(self, mask: int) -> int:
        return sum(1 << self.back[item] for item in _bits(mask))


def _augment(fits: Sequence[int], item: int, owners: dict[int, int], seen: set[int]) -> bool:
    """Give an item a place, moving others; `owners` (place to item) is the caller's own."""
    for place, each in enumerate(fits):
        if each >> item & 1 and place not in seen:
            seen.add(place)
            if place not in owners or _augment(fits, owners[place], owners, seen):
                owners[place] = item
                return True
    return False


def _ease(problem: Problem, item: int) -> tuple[object, ...]:
    """Order items: few places first, then large ones; those alike come one after the other."""
    asked = problem.items[item]
    share = sum(amount / max(1, *problem.rooms[kind]) for kind, amount in asked.takes)
    return asked.places.bit_count(), -share, asked.places, asked.takes, item
