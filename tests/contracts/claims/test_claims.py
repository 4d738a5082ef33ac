"""What claims promise on every adapter: exact, once, all or none, also in a race."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest

from conductor.placement.local.instance_allocations import release_instance
from conductor.scheduling.scheduling_service import Scheduler
from conductor.store import Store
from models.errors import Unreachable
from models.hardware import PagePool
from models.messages.internal import OutgoingMessage, SelectHosts
from tests.contracts.store.conftest import Opener
from tests.invariants import assert_invariants
from tests.scheduling.world import World, chosen, flavor, host, pinned, refusal

RACERS = 4
PATIENCE_S = 60


def test_a_claim_and_its_release_leave_the_host_as_it_was(store: Store) -> None:
    world = World(store)
    plain = host("a")
    cells = tuple(
        replace(cell, page_pools=(PagePool(4, 1_048_576), PagePool(2048, 2048, reserved=100)))
        for cell in plain.topology.cells
    )
    world.add_hosts(replace(plain, topology=replace(plain.topology, cells=cells)))
    before = world.host("a")
    instances = [
        world.add_instance(pinned(vcpus=4, **{"hw:numa_nodes": "2"})),
        world.add_instance(pinned(vcpus=2, **{"hw:mem_page_size": "2MB"})),
        world.add_instance(flavor(vcpus=3)),
    ]
    for instance in instances:
        chosen(world.schedule(instance))
        assert_invariants(store)
    for instance in instances:
        with store.begin() as uow:
            (held,) = uow.instances.lock_many([instance.id]).values()
            uow.instances.save(release_instance(uow, held))
        assert_invariants(store)
    after = world.host("a")
    assert (after.topology, dict(after.used), after.instances) == (before.topology, {}, 0)


def test_a_request_is_placed_whole_or_not_at_all(store: Store) -> None:
    world = World(store)
    world.add_hosts(host("a", cells=1), host("b", cells=1))
    three = [world.add_instance(pinned(vcpus=4)) for _ in range(3)]
    assert refusal(world.schedule(*three)).startswith("instance 3 of 3: 2 hosts")
    assert world.host("a").used == {}
    assert sorted(chosen(world.schedule(*three[:2]))) == ["a", "b"]
    assert_invariants(store)


def test_a_repeated_message_finds_the_first_answer(opener: Opener) -> None:
    world = World(opener())
    world.add_hosts(host("a"), host("b"))
    message = world.ask(world.add_instance(), world.add_instance())
    first = world.scheduler.handle(message)
    assert Scheduler(opener()).handle(message) == first
    assert_invariants(world.store)


def test_a_message_delivered_to_four_at_once_is_answered_alike_and_claims_once(
    opener: Opener,
) -> None:
    world = World(opener())
    world.add_hosts(host("a"), host("b"))
    message = world.ask(world.add_instance(), world.add_instance(pinned()))
    outgoing_messages = race(opener, [message] * RACERS)
    assert len(outgoing_messages) == RACERS
    assert all(outgoing == outgoing_messages[0] for outgoing in outgoing_messages)
    assert_invariants(world.store)


@pytest.mark.parametrize("room", [12, 11])
def test_racing_schedulers_claim_exactly_the_room_there_is(opener: Opener, room: int) -> None:
    world = World(opener())
    world.add_hosts(host("a", cells=1, shared=0, dedicated=room, memory_mib=65_536))
    asks = [world.ask(world.add_instance(pinned(vcpus=1, memory_mib=64))) for _ in range(12)]
    codes = [_code(outgoing) for outgoing in race(opener, asks)]
    assert codes.count("done") == room
    assert codes.count("no_valid_host") == 12 - room
    assert_invariants(world.store)


def test_racing_members_of_groups_keep_their_rules(opener: Opener) -> None:
    world = World(opener())
    world.add_hosts(*(host(f"h{n}") for n in range(4)))
    world.define("server_group", "apart", policy="anti-affinity")
    world.define("server_group", "together", policy="affinity")
    asks = [
        world.ask(world.add_instance(flavor(vcpus=1), group=group))
        for group in ("apart", "together") * 4
    ]
    assert [_code(outgoing) for outgoing in race(opener, asks)] == ["done"] * 8
    with world.store.read() as uow:
        assert set(uow.instances.hosts_of_group("apart").values()) == {1}
        assert len(uow.instances.hosts_of_group("together")) == 1
    assert_invariants(world.store)


def test_two_releases_at_once_give_back_once(opener: Opener) -> None:
    world = World(opener())
    world.add_hosts(host("a"))
    instances = [world.add_instance(pinned(vcpus=1, memory_mib=64)) for _ in range(8)]
    chosen(world.schedule(*instances))
    stores = [opener() for _ in range(2)]
    start = threading.Barrier(2)

    def release_all(store: Store) -> None:
        start.wait(PATIENCE_S)
        for instance in instances:
            held = world.instance(instance.id)
            with store.begin() as uow:
                release_instance(uow, held)

    with ThreadPoolExecutor(2) as pool:
        for job in [pool.submit(release_all, store) for store in stores]:
            job.result(PATIENCE_S)
    assert world.host("a").used == {}
    assert world.host("a").instances == 0


def race(opener: Opener, asks: list[SelectHosts]) -> list[OutgoingMessage]:
    """Answer the messages from several schedulers at once, each on a store of its own."""
    start = threading.Barrier(RACERS)
    candidate = [asks[number::RACERS] for number in range(RACERS)]
    schedulers = [Scheduler(opener()) for _ in range(RACERS)]

    def work(scheduler: Scheduler, share: list[SelectHosts]) -> list[OutgoingMessage]:
        start.wait(PATIENCE_S)
        return [outgoing for message in share for outgoing in _handled(scheduler, message)]

    with ThreadPoolExecutor(RACERS) as pool:
        jobs: list[Callable[[], list[OutgoingMessage]]] = [
            pool.submit(work, *pair).result for pair in zip(schedulers, candidate, strict=True)
        ]
        return [outgoing for job in jobs for outgoing in job()]


def _handled(scheduler: Scheduler, message: SelectHosts) -> Sequence[OutgoingMessage]:
    """Hand a message over until the database is not too busy for it, as the broker would."""
    while True:
        with suppress(Unreachable):
            return scheduler.handle(message)


def _code(outgoing: OutgoingMessage) -> str:
    error = outgoing.body.get("error") or {}
    return str(error.get("code", outgoing.body["outcome"]))
