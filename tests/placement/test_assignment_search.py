"""Putting items into places: all ways, each once, and an early no."""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product

import pytest
from hypothesis import given, seed
from hypothesis import strategies as st

from conductor.placement.candidates.assignment_problem import Item, Problem
from conductor.placement.candidates.assignment_search import assignments


def packing(amounts: list[int], rooms: list[int]) -> Problem:
    """Return the problem to put amounts into rooms."""
    items = tuple(Item(_with_room([rooms], {0: amount}), ((0, amount),)) for amount in amounts)
    return Problem(
        len(rooms), items, (tuple(rooms),), (0,) * len(rooms), parents=(None,) * len(rooms)
    )


def test_items_go_wherever_there_is_room() -> None:
    assert set(assignments(packing([2, 1], [2, 1]))) == {(0, 1)}
    assert set(assignments(packing([1, 1], [2, 0]))) == {(0, 0)}
    assert not list(assignments(packing([2, 2], [3, 1])))


def test_nothing_to_place_has_no_ways() -> None:
    assert not list(assignments(Problem(2, ())))


@pytest.mark.parametrize(
    ("amounts", "rooms"),
    [
        ([6] * 16, [10] * 15),
        ([51 + at for at in range(16)], [100 + at % 3 for at in range(15)]),
        # Odd rooms for even amounts: one of each room is never filled.
        ([2 * number for number in range(20, 36)], [221, 221, 221, 219]),
    ],
)
def test_what_does_not_fit_is_told_in_few_steps(amounts: list[int], rooms: list[int]) -> None:
    """Sixteen items have up to 10**18 ways to be tried: only looking ahead ends these."""
    problem = packing(amounts, rooms)
    began = time.process_time()
    assert not list(assignments(problem))
    assert time.process_time() - began < 1


def test_a_search_of_exponential_size_ends() -> None:
    """Packing three kinds of room nearly full has no cheap exact answer: 12**36 ways to try."""
    chance, places = random.Random(0), 12
    sizes = [[chance.randint(200, 999) for _ in range(3)] for _ in range(3 * places)]
    rooms = [[sum(pair) // places + 80] * places for pair in zip(*sizes, strict=True)]
    items = tuple(Item((1 << places) - 1, tuple(enumerate(size))) for size in sizes)
    problem = Problem(
        places, items, tuple(map(tuple, rooms)), (0,) * places, parents=(None,) * places
    )
    began = time.process_time()
    assert all(_holds(problem, pair) for pair in islice(assignments(problem), 1))
    assert time.process_time() - began < 20


@seed(0)
@given(st.integers(0, 10**9))
def test_the_ways_are_those_that_trying_all_finds_and_none_comes_twice(number: int) -> None:
    problem = _random_problem(random.Random(number))
    found = list(assignments(problem))
    assert len(found) == len(set(found))
    assert set(found) == set(_by_trying(problem))


def _random_problem(chance: random.Random) -> Problem:
    count = chance.randint(2, 5)
    number = chance.randint(3, {2: 9, 3: 8, 4: 7, 5: 6}[count])
    kinds = chance.randint(0, 2)
    alike = chance.random() < 0.5
    amounts = [chance.randint(1, 5) for _ in range(number)]
    total = sum(amounts)
    rooms = tuple(
        tuple(chance.choice((total // count, total // count + 2, 5, 7)) for _ in range(count))
        for _ in range(kinds)
    )
    items = tuple(
        _random_item(chance, rooms, amounts[0] if alike else amounts[at], count)
        for at in range(number)
    )
    owed = chance.choice((0, 0, 0b1, 0b111))
    families = []
    members = list(range(number))
    chance.shuffle(members)
    for _ in range(chance.choice((0, 0, 1, 2))):
        size = chance.randint(2, 3)
        families.append(sum(1 << member for member in members[:size]))
        members = members[chance.randint(1, size) :] or members
    return Problem(
        count,
        items,
        rooms,
        tuple(chance.randint(0, 0b111) for _ in range(count)),
        owed,
        chance.choice((0, 0, (1 << number) - 1 >> number // 2)),
        tuple(families),
        tuple(
            None if not at or chance.random() < 0.3 else chance.randrange(at) for at in range(count)
        ),
    )


def _random_item(
    chance: random.Random, rooms: Sequence[Sequence[int]], amount: int, count: int
) -> Item:
    takes = {kind: amount for kind in range(len(rooms)) if chance.random() < 0.8}
    everywhere = (1 << count) - 1
    places = everywhere if chance.random() < 0.6 else chance.randint(1, everywhere)
    if takes:
        places &= _with_room(rooms, takes)
    return Item(places, tuple(takes.items()), covers=chance.random() < 0.5)


def _with_room(rooms: Sequence[Sequence[int]], takes: Mapping[int, int]) -> int:
    """Return the places that have room for these amounts by kind."""
    return sum(
        1 << place
        for place in range(len(rooms[0]))
        if all(amount <= rooms[kind][place] for kind, amount in takes.items())
    )


def _by_trying(problem: Problem) -> Iterator[tuple[int, ...]]:
    domains = [
        [place for place in range(problem.count) if item.places >> place & 1]
        for item in problem.items
    ]
    for places in product(*domains):
        if _holds(problem, places):
            yield places


def _holds(problem: Problem, places: tuple[int, ...]) -> bool:
    left = [list(row) for row in problem.free]
    paid = 0
    for item, place in zip(problem.items, places, strict=True):
        for kind, amount in item.requests:
            left[kind][place] -= amount
        if item.covers:
            paid |= problem.traits[place]
    apart = [place for at, place in enumerate(places) if problem.apart >> at & 1]
    return (
        all(room >= 0 for row in left for room in row)
        and problem.uncovered & ~paid == 0
        and len(apart) == len(set(apart))
        and all(_has_a_head(problem, places, members) for members in problem.subtrees)
    )


def _has_a_head(problem: Problem, places: tuple[int, ...], members: int) -> bool:
    meant = [place for at, place in enumerate(places) if members >> at & 1]
    return any(all(head in _line(problem, place) for place in meant) for head in meant)


def _line(problem: Problem, place: int) -> list[int]:
    line = [place]
    while (parent := problem.parents[line[-1]]) is not None:
        line.append(parent)
    return line
