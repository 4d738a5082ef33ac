"""Races on a real Placement server that answers many at once: on PostgreSQL, not on SQLite."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest
from tenacity import wait_random_exponential

from conductor.placement.allocations import allocate
from conductor.placement.http.http_client import PlacementClient
from conductor.placement.http.http_placement import HttpPlacement
from conductor.placement.request_groups import Candidate
from conductor.store import Inventory
from models.errors import Conflict, NoValidHost
from tests.contracts.placement.world import ROOM, held, holder, make, new_id, used
from tests.environment import placement as environment
from tests.environment.private import StartError

AT_ONCE = 8


@pytest.fixture(scope="module")
def busy_placement(fresh_database: Callable[[], str]) -> Iterator[HttpPlacement]:
    try:
        with environment.server(fresh_database()) as server:
            url = server.url.replace("://", "://admin@")
            with closing(PlacementClient(url)) as client:
                wait = wait_random_exponential(multiplier=0.01, max=0.5)
                yield HttpPlacement(client, wait=wait)
    except StartError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.mark.parametrize(("room", "refused"), [(50, 0), (49, 1)])
def test_of_fifty_claims_at_once_as_many_succeed_as_there_is_room_for(
    busy_placement: HttpPlacement, room: int, refused: int
) -> None:
    made = make(busy_placement, f"room-for-{room}", {"VCPU": Inventory(room)})
    candidate = Candidate({made.id: {"VCPU": 1}}, {"": (made.id,)}, made.id)

    def one_more(_: int) -> str:
        try:
            allocate(busy_placement, holder({}), candidate)
        except NoValidHost as error:
            return error.code
        return "claimed"

    with ThreadPoolExecutor(AT_ONCE) as pool:
        told = list(pool.map(one_more, range(50)))
    assert sorted(told) == ["claimed"] * room + ["no_capacity"] * refused
    assert used(busy_placement, made) == {"VCPU": room}


def test_of_those_that_write_one_consumer_at_once_one_wins_and_the_others_are_told(
    busy_placement: HttpPlacement,
) -> None:
    made = make(busy_placement, new_id(), ROOM)
    consumer = held(busy_placement, made, {"VCPU": 1})

    def written(amount: int) -> int:
        try:
            after = replace(consumer, allocations={made.id: {"VCPU": amount}})
            busy_placement.write([after])
        except Conflict:
            return 0
        return amount

    with ThreadPoolExecutor(AT_ONCE) as pool:
        won = [number for number in pool.map(written, range(2, 8)) if number]
    assert len(won) == 1
    assert used(busy_placement, made) == {"VCPU": won[0]}
