"""The scheduler as a process: all or none, once only, and never against what others wrote."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from conductor.placement.local.instance_allocations import release_instance
from conductor.scheduling.scheduling_service import Scheduler
from conductor.scheduling.settings import SchedulingSettings
from conductor.store import Heartbeat, Instance
from models.errors import Broken
from models.lifecycle import InstanceState, OperationState, TaskState
from models.messages.internal import REPORTS, HostRequest, SelectHosts, Token
from tests.invariants import assert_invariants
from tests.scheduling.world import (
    World,
    chosen,
    flavor,
    host,
    operation_that_asks,
    pinned,
    refusal,
)


def state_of(world: World, message: SelectHosts) -> OperationState:
    with world.store.read() as uow:
        operation = uow.operations.get(message.token.operation_id)
    assert operation is not None
    return operation.state


def release(world: World, instance_id: str) -> None:
    with world.store.begin() as uow:
        instance = uow.instances.lock(instance_id)
        assert instance is not None
        uow.instances.save(release_instance(uow, instance))


def test_a_claim_moves_host_instance_operation_and_reply_together() -> None:
    world = World()
    world.add_hosts(host("a"))
    message = world.ask(instance := world.add_instance(pinned(vcpus=3, memory_mib=2048)))
    (outgoing,) = world.scheduler.handle(message)
    after, claimed = world.host("a"), world.instance(instance.id)
    assert after.used == {"PCPU": 3, "MEMORY_MB": 2048, "DISK_GB": 10}
    assert (after.version, after.instances) == (2, 1)
    assert claimed.host == "a"
    assert claimed.placement is not None
    assert claimed.task_state is TaskState.SPAWNING
    assert state_of(world, message) is OperationState.CLAIMED
    assert outgoing.queue == REPORTS
    with world.store.read() as uow:
        assert [row.id for row in uow.outbox.where()] == [outgoing.id]
    assert_invariants(world.store)


def test_all_instances_of_a_request_are_placed_or_none() -> None:
    world = World()
    world.add_hosts(host("a", cells=1), host("b", cells=1))
    three = [world.add_instance(pinned(vcpus=4)) for _ in range(3)]
    line = refusal(world.schedule(*three))
    assert line.startswith("instance 3 of 3: 2 hosts: 2 lack free dedicated CPUs")
    assert world.host("a") == host("a", cells=1)
    assert world.host("b") == host("b", cells=1)
    assert chosen(world.schedule(*three[:2])) == ["a", "b"]
    assert_invariants(world.store)


def test_a_large_request_is_planned_against_its_own_claims() -> None:
    world = World()
    world.add_hosts(*(host(f"h{n}") for n in range(5)))
    many = [world.add_instance(pinned(vcpus=1, memory_mib=64)) for _ in range(40)]
    hosts = chosen(world.schedule(*many))
    assert {name: hosts.count(name) for name in set(hosts)} == {f"h{n}": 8 for n in range(5)}
    assert all(world.host(f"h{n}").version == 2 for n in range(5))
    assert_invariants(world.store)


def test_the_same_message_twice_claims_once_and_finds_the_same_answer() -> None:
    world = World()
    world.add_hosts(host("a"), host("b"))
    message = world.ask(world.add_instance())
    first = world.scheduler.handle(message)
    hosts = world.host("a"), world.host("b")
    again = world.scheduler.handle(message)
    other_process = Scheduler(world.store).handle(message)
    assert first == again == other_process
    assert (world.host("a"), world.host("b")) == hosts
    assert_invariants(world.store)


def test_a_refusal_is_repeated_word_for_word() -> None:
    world = World()
    world.add_hosts(host("a", dedicated=1))
    message = world.ask(world.add_instance(pinned(vcpus=32)))
    first = world.scheduler.handle(message)
    world.add_hosts(host("b", dedicated=64))
    assert world.scheduler.handle(message) == first


@pytest.mark.parametrize(
    "change",
    [
        {"sequence": 2},
        {"waiting_on": None},
        {"waiting_on": "compute:a"},
        {"state": OperationState.CANCELLED},
    ],
)
def test_a_message_nobody_waits_for_any_more_changes_nothing(change: dict[str, object]) -> None:
    world = World()
    world.add_hosts(host("a"))
    message = world.ask(world.add_instance())
    with world.store.begin() as uow:
        operation = uow.operations.lock(message.token.operation_id)
        assert operation is not None
        uow.operations.save(replace(operation, **change))  # type: ignore[arg-type]  # one field each, as parametrized
    assert world.scheduler.handle(message) == []
    assert world.host("a") == host("a")


def test_a_message_of_an_unknown_operation_changes_nothing() -> None:
    world = World()
    world.add_hosts(host("a"))
    instance = world.add_instance()
    token = Token(operation_id="none", step="s", attempt=1, sequence=1)
    message = SelectHosts(
        token=token, host_requests=(HostRequest(instance_id=instance.id, operation_id="none"),)
    )
    assert world.scheduler.handle(message) == []


def _delete(instance: Instance) -> Instance:
    return replace(instance, state=InstanceState.DELETED)


def test_instances_deleted_meanwhile_are_left_out_and_the_others_placed() -> None:
    world = World()
    world.add_hosts(host("a"), host("b"))
    kept, gone = world.add_instance(), world.add_instance()
    message = world.ask(kept, gone)
    with world.store.begin() as uow:
        uow.instances.save(_delete(gone))
    (outgoing,) = world.scheduler.handle(message)
    selected = outgoing.body["result"]["selected"]
    assert [item["instance_id"] for item in selected] == [kept.id]
    assert_invariants(world.store)


def test_a_child_whose_own_operation_has_ended_is_left_out() -> None:
    world = World()
    world.add_hosts(host("a"))
    kept, gone = world.add_instance(), world.add_instance()
    parent = world.ask(kept, gone)
    ended = replace(
        operation_that_asks("child"), state=OperationState.CANCELLED, parent_id="parent"
    )
    with world.store.begin() as uow:
        uow.operations.add(ended)
    host_requests = (
        parent.host_requests[0],
        HostRequest(instance_id=gone.id, operation_id="child"),
    )
    (outgoing,) = world.scheduler.handle(
        SelectHosts(token=parent.token, host_requests=host_requests)
    )
    assert len(outgoing.body["result"]["selected"]) == 1
    assert world.instance(gone.id).host is None


def test_an_instance_that_holds_a_host_is_never_given_a_second() -> None:
    world = World()
    world.add_hosts(host("a"), host("b"))
    instance = world.add_instance()
    world.schedule(instance)
    reply = world.schedule(instance)
    assert reply.error is not None
    assert (reply.outcome, reply.error["code"]) == ("failed", "instance_holds_host")
    assert_invariants(world.store)


def test_a_flavor_and_image_that_contradict_are_answered_as_rejected() -> None:
    world = World()
    world.add_hosts(host("a"))
    reply = world.build(flavor(**{"hw:cpu_policy": "sometimes"}))
    assert reply.error is not None
    assert reply.error["kind"] == "Rejected"


def test_what_others_gave_back_is_seen_before_a_no() -> None:
    world = World(settings=SchedulingSettings(refresh_s=3600))
    world.add_hosts(host("a", cells=1))
    first = world.add_instance(pinned(vcpus=4))
    chosen(world.schedule(first))
    release(world, first.id)
    assert chosen(world.build(pinned(vcpus=4))) == ["a"]
    assert_invariants(world.store)


def test_a_new_host_is_seen_before_a_no() -> None:
    world = World(settings=SchedulingSettings(refresh_s=3600))
    world.add_hosts(host("a", dedicated=1))
    world.build(flavor())
    world.add_hosts(host("b", dedicated=16))
    assert chosen(world.build(pinned(vcpus=16))) == ["b"]


def test_what_others_took_costs_a_fit_of_that_host_and_no_error() -> None:
    world = World(settings=SchedulingSettings(refresh_s=3600))
    world.add_hosts(host("a", cells=1))
    world.build(pinned(vcpus=1))
    other = Scheduler(world.store)
    chosen_by_other = other.handle(world.ask(world.add_instance(pinned(vcpus=2))))
    assert chosen_by_other
    assert chosen(world.build(pinned(vcpus=1))) == ["a"]
    assert refusal(world.build(pinned(vcpus=1))).startswith("1 host: 1 lacks free dedicated CPUs")
    assert_invariants(world.store)


def test_amounts_that_others_took_are_not_taken_again_from_an_old_view() -> None:
    world = World(settings=SchedulingSettings(refresh_s=3600))
    world.add_hosts(host("a", cells=1, shared=1), host("b", cells=1, shared=1))
    world.build(flavor(vcpus=1, memory_mib=64), host="a")
    other = Scheduler(world.store)
    for name in ("a", "b") * 3:
        other.handle(world.ask(world.add_instance(flavor(vcpus=1, memory_mib=64), host=name)))
    assert chosen(world.build(flavor(vcpus=1, memory_mib=64))) == ["b"]
    line = refusal(world.build(flavor(vcpus=1, memory_mib=64)))
    assert line == "2 hosts: 2 lack free shared CPUs (need 1, best 0 on a)"
    assert_invariants(world.store)


def test_a_host_that_filled_up_meanwhile_is_replaced_by_the_next() -> None:
    world = World(settings=SchedulingSettings(refresh_s=3600))
    world.add_hosts(host("a", cells=1), host("b", cells=1, shared=2))
    world.build(flavor(vcpus=1, memory_mib=64))
    Scheduler(world.store).handle(world.ask(world.add_instance(pinned(vcpus=4)), ignored=("b",)))
    assert chosen(world.build(pinned(vcpus=4))) == ["b"]
    assert_invariants(world.store)


def test_a_host_disabled_meanwhile_is_not_claimed_from_an_old_view() -> None:
    world = World(settings=SchedulingSettings(refresh_s=3600))
    world.add_hosts(host("a"), host("b", shared=2))
    world.build(flavor(vcpus=1))
    with world.store.begin() as uow:
        known = uow.hosts.lock("a")
        assert known is not None
        uow.hosts.save(replace(known, enabled=False, version=known.version + 1))
    for _ in range(3):
        assert chosen(world.build(flavor(vcpus=1))) == ["b"]
    assert not world.host("a").enabled


def test_a_silent_host_is_down_after_its_time_and_up_when_heard_again() -> None:
    world = World(settings=SchedulingSettings(refresh_s=0))
    world.add_hosts(host("a"))
    chosen(world.build())

    def hear(age_s: float) -> None:
        with world.store.begin() as uow:
            uow.heartbeats.put(Heartbeat("a", "compute", uow.now - age_s))

    hear(31)
    fresh = World(world.store, SchedulingSettings())
    fresh.numbers = world.numbers
    assert refusal(fresh.build()) == "1 host: 1 is down"
    hear(0)
    assert chosen(fresh.build()) == ["a"]


def test_releasing_twice_gives_back_once() -> None:
    world = World()
    before = host("a")
    world.add_hosts(before)
    instance = world.add_instance(pinned(vcpus=4))
    world.schedule(instance)
    claimed = world.instance(instance.id)
    for _ in range(2):
        with world.store.begin() as uow:
            released = release_instance(uow, claimed)
            uow.instances.save(released)
    assert (released.host, released.placement) == (None, None)
    after = world.host("a")
    assert replace(after, version=1, updated_at=before.updated_at) == before
    assert after.version == 3
    assert_invariants(world.store)


def test_releasing_nothing_is_harmless() -> None:
    world = World()
    world.add_hosts(host("a"))
    instance = world.add_instance()
    release(world, instance.id)
    assert world.host("a") == host("a")


def test_releasing_from_a_host_that_was_removed_drops_the_allocation() -> None:
    world = World()
    world.add_hosts(host("a"))
    instance = world.add_instance()
    world.schedule(instance)
    with world.store.begin() as uow:
        uow.hosts.drop("a")
    release(world, instance.id)
    with world.store.read() as uow:
        assert uow.allocations.where() == []


def test_a_host_that_does_not_have_what_is_given_back_is_a_defect() -> None:
    world = World()
    world.add_hosts(host("a"))
    instance = world.add_instance()
    world.schedule(instance)
    with world.store.begin() as uow:
        uow.hosts.save(replace(world.host("a"), used={}, version=9))
    with pytest.raises(Broken) as broken:
        release(world, instance.id)
    assert broken.value.code == "use_contradicts_claim"


def race(world: World, threads: int, work: Callable[[Scheduler], None]) -> None:
    """Run `work` in as many threads, each with a scheduler of its own, from one start."""
    barrier = threading.Barrier(threads)
    errors: list[BaseException] = []

    def run() -> None:
        scheduler = Scheduler(world.store, world.settings)
        barrier.wait()
        try:
            work(scheduler)
        except BaseException as error:  # noqa: BLE001  # shown by the thread that can fail
            errors.append(error)

    running = [threading.Thread(target=run) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert errors == []


@pytest.mark.parametrize("room", [50, 49])
def test_four_racing_schedulers_claim_exactly_the_room_there_is(room: int) -> None:
    world = World()
    world.add_hosts(host("a", cells=1, shared=0, dedicated=room, memory_mib=65_536))
    asks = [world.ask(world.add_instance(pinned(vcpus=1, memory_mib=64))) for _ in range(50)]
    outcomes: list[str] = []
    lock = threading.Lock()

    def work(scheduler: Scheduler) -> None:
        while True:
            with lock:
                if not asks:
                    return
                message = asks.pop()
            (outgoing,) = scheduler.handle(message)
            error = outgoing.body.get("error") or {}
            outcomes.append(error.get("code", outgoing.body["outcome"]))

    race(world, 4, work)
    assert sorted(set(outcomes)) == (["done"] if room == 50 else ["done", "no_valid_host"])
    assert outcomes.count("done") == room
    assert_invariants(world.store)


def test_racing_members_of_an_anti_affinity_group_never_meet() -> None:
    world = World()
    world.add_hosts(*(host(f"h{n}") for n in range(4)))
    world.define("server_group", "g", policy="anti-affinity")
    asks = [world.ask(world.add_instance(flavor(), group="g")) for _ in range(4)]
    hosts: list[str] = []

    def work(scheduler: Scheduler) -> None:
        (outgoing,) = scheduler.handle(asks.pop())
        hosts.append(outgoing.body["result"]["selected"][0]["host"])

    race(world, 4, work)
    assert sorted(hosts) == ["h0", "h1", "h2", "h3"]
    assert_invariants(world.store)


def test_racing_first_members_of_an_affinity_group_end_on_one_host() -> None:
    world = World()
    world.add_hosts(*(host(f"h{n}") for n in range(4)))
    world.define("server_group", "g", policy="affinity")
    asks = [world.ask(world.add_instance(flavor(), group="g")) for _ in range(4)]
    hosts: list[str] = []

    def work(scheduler: Scheduler) -> None:
        (outgoing,) = scheduler.handle(asks.pop())
        hosts.append(outgoing.body["result"]["selected"][0]["host"])

    race(world, 4, work)
    assert len(set(hosts)) == 1
