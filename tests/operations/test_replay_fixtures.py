"""The fixtures of replay: what each leaves, under audits between any two commits, and its replay.

Cases N05, N17, N18, N30, N31 and N42 of public reports, with the numbers reported there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from conductor.hosts.reconciliation import SETTLED_S
from models.lifecycle import InstanceState, MigrationState, OperationState
from models.messages.internal import CONDUCTOR, REPORTS, SCHEDULER
from tests.operations.audit import check_at_rest
from tests.operations.test_moves import ask, built, error_code
from tests.operations.test_replay import moody, replay, replayed, told
from tests.operations.world import CONTEXT, World

T = TypeVar("T")
A, B = "host-0", "host-1"
SMALL = {"vcpus": 1, "memory_mb": 512, "root_gb": 1}
LARGE = {"vcpus": 2, "memory_mb": 1024, "root_gb": 1}
PAIR = {"vcpus": 2, "memory_mb": 512, "extra_specs": {"hw:cpu_policy": "dedicated"}}
PAIR_RESIZED = {**PAIR, "memory_mb": 1024}
CALLER = "caller"


def cell_of(dedicated: list[int], shared: list[int]) -> dict[str, Any]:
    """Return a host of one NUMA cell with these CPUs."""
    cpus = sorted({*dedicated, *shared})
    cell = {
        "id": 0,
        "socket": 0,
        "cpuset": shared,
        "pcpuset": dedicated,
        "memory": 4096,
        "siblings": [[cpu] for cpu in cpus],
        "mempages": [[4, 4096 * 256, 0, 0]],
        "cpu_usage": 0,
        "memory_usage": 0,
        "pinned_cpus": [],
    }
    return {"cells": [cell]}


N31_HOST = cell_of([0, 1, 2, 3], [4, 5, 6, 7])
N42_HOST = cell_of([0, 1, 2, 3], [])


def used(world: World, host: str) -> tuple[int, int, int]:
    """Return vCPUs, MiB and GiB that are claimed of a host."""
    amounts = world.host(host).used
    return amounts.get("VCPU", 0), amounts.get("MEMORY_MB", 0), amounts.get("DISK_GB", 0)


def vcpus(world: World) -> tuple[int, int]:
    """Return the vCPUs claimed of both hosts."""
    return used(world, A)[0], used(world, B)[0]


def pinned(world: World, host: str) -> set[int]:
    """Return the pinned CPUs of a host."""
    mask = world.host(host).topology.cells[0].pinned_cpus
    return {cpu for cpu in range(8) if mask >> cpu & 1}


def pinned_counts(world: World) -> tuple[int, int]:
    """Return how many CPUs are pinned on both hosts."""
    return len(pinned(world, A)), len(pinned(world, B))


@contextmanager
def audited(world: World, look: Callable[[World], T]) -> Iterator[list[T]]:
    """Audit every host behind every commit; give what was seen before and after, changes only."""
    seen: list[T] = []
    world.all_hear = True  # a minute passes behind each commit: nobody could hear in time

    def between() -> None:
        world.store.after_commit = lambda: None
        note()
        world.now += 2 * SETTLED_S
        before = listed()
        world.audit()
        note()
        assert all(newer > older for older, newer in zip(before, listed(), strict=True))
        world.store.after_commit = between

    def listed() -> list[int]:
        with world.store.read() as uow:
            beats = {
                heartbeat.name: heartbeat.listed for heartbeat in uow.heartbeats.where(name=(A, B))
            }
        return [beats[A], beats[B]]

    def note() -> None:
        now = look(world)
        if not seen or seen[-1] != now:
            seen.append(now)

    world.store.after_commit = between
    yield seen
    world.store.after_commit = lambda: None


# -- N05: the caller never hears what became of its live migration ---------------------------


def asked_by_a_caller(world: World, instance_id: str, operation_id: str) -> None:
    """Ask for a live migration as a caller who waits for the answer, and lose the answer."""
    body = {"context": CONTEXT, "instance_id": instance_id}
    world.service.handle_request("conductor.live_migrate_instance", operation_id, body, CALLER)
    while queues := [
        waiting_queue for waiting_queue in world.waiting_queues() if waiting_queue != CALLER
    ]:
        world.deliver(queues[0])
    assert world.bus.drop(CALLER) == 1


N05_ID = "00000000-0000-4000-8000-0000000000a5"


def test_n05_a_migration_that_ran_while_its_answer_was_lost_is_done_and_its_replay_says_so() -> (
    None
):
    world = World(hosts=2)
    instance_id = built(world, SMALL, host=A)
    asked_by_a_caller(world, instance_id, N05_ID)
    instance = world.instance_by_id(instance_id)
    assert (instance.state, instance.host, instance.task_state) == (InstanceState.ACTIVE, B, None)
    assert (used(world, A), used(world, B)) == ((0, 0, 0), (1, 512, 1))
    again = replayed(world, N05_ID)
    assert again.state is OperationState.SUCCEEDED
    assert "declared done" in told(world, again.id)
    assert world.instance_by_id(instance_id).host == B
    check_at_rest(world)


def test_n05_a_migration_that_failed_while_its_answer_was_lost_left_no_trace_but_its_fault() -> (
    None
):
    mood = {"bad": True}
    world = World(hosts=2, injected_faults=moody("copy", A, mood))
    instance_id = built(world, SMALL, host=A)
    asked_by_a_caller(world, instance_id, N05_ID)
    instance = world.instance_by_id(instance_id)
    assert (instance.state, instance.host, instance.task_state) == (InstanceState.ACTIVE, A, None)
    assert (used(world, A), used(world, B)) == ((1, 512, 1), (0, 0, 0))
    assert (instance.fault or {})["message"]
    assert "failed: " in told(world, N05_ID)
    check_at_rest(world)
    mood["bad"] = False
    again = replayed(world, N05_ID)
    assert again.state is OperationState.SUCCEEDED
    assert "forward" in told(world, again.id)
    assert (used(world, A), used(world, B)) == ((0, 0, 0), (1, 512, 1))
    check_at_rest(world)


def test_n05_a_migration_that_never_arrived_has_changed_nothing_and_can_be_sent_again() -> None:
    world = World(hosts=2)
    instance_id = built(world, SMALL, host=A)
    world.submit("live_migrate_instance", {"instance_id": instance_id}, N05_ID)
    assert world.bus.drop(CONDUCTOR) == 1
    world.run_out()
    refused = replay(world, N05_ID)
    assert error_code(world, refused) == "operation_unknown"
    assert (used(world, A), used(world, B)) == ((1, 512, 1), (0, 0, 0))
    world.submit("live_migrate_instance", {"instance_id": instance_id}, N05_ID)
    world.run_out()
    assert world.ended(N05_ID) is OperationState.SUCCEEDED
    assert world.instance_by_id(instance_id).host == B
    check_at_rest(world)


# -- N17: an instance is deleted while its move is under way, which then fails ----------------


@pytest.mark.parametrize(
    ("taken", "reason"),
    [((), "cancelled"), ((SCHEDULER,), "cancelled"), ((SCHEDULER, REPORTS), "no_valid_host")],
    ids=["while it chooses", "its no on the way", "its no taken"],
)
def test_n17_a_delete_while_the_scheduler_finds_no_host_leaves_nothing_and_the_real_reason(
    taken: tuple[str, ...], reason: str
) -> None:
    world = World(hosts=2)
    instance_id = built(world, SMALL, host=A)
    built(world, {"vcpus": 4, "memory_mb": 4096}, host=B)
    move = world.submit("migrate_instance", {"instance_id": instance_id})
    for queue in (CONDUCTOR, *taken):
        world.deliver(queue)
    world.submit("delete_instance", {"instance_id": instance_id})
    world.deliver(CONDUCTOR)
    world.run_out()
    assert world.instance_by_id(instance_id).state is InstanceState.DELETED
    assert (used(world, A), used(world, B)) == ((0, 0, 0), (4, 4096, 0))
    assert error_code(world, move) == reason
    refuse_the_replay_of_a_deleted(world, move)


def test_n17_a_delete_in_the_preparations_on_the_target_leaves_nothing_on_either_host() -> None:
    world = World(hosts=2, injected_faults=moody("spawn", B, {"bad": True}))
    instance_id = built(world, SMALL, host=A)
    move = world.submit("migrate_instance", {"instance_id": instance_id})
    world.deliver(CONDUCTOR)
    world.deliver(SCHEDULER)
    world.deliver(REPORTS)
    assert used(world, B) == (1, 512, 1)
    world.submit("delete_instance", {"instance_id": instance_id})
    world.deliver(CONDUCTOR)
    world.run_out()
    assert world.instance_by_id(instance_id).state is InstanceState.DELETED
    assert (used(world, A), used(world, B)) == ((0, 0, 0), (0, 0, 0))
    assert world.guests() == {}
    assert error_code(world, move) == "cancelled"
    refuse_the_replay_of_a_deleted(world, move)


def refuse_the_replay_of_a_deleted(world: World, move: str) -> None:
    """Replay the failed move: it names the conflict and changes nothing."""
    again = replayed(world, move)
    assert again.state is OperationState.FAILED
    assert (again.error or {})["code"] == "replay_refused"
    assert "has been deleted" in (again.error or {})["message"]
    check_at_rest(world)


# -- N18: the last step on the target fails, after the host was switched ----------------------


def test_n18_a_failed_finish_leaves_exactly_the_new_flavor_there_and_its_replay_finishes_it() -> (
    None
):
    mood = {"bad": True}
    world = World(hosts=2, injected_faults=moody("power_on", B, mood))
    instance_id = built(world, SMALL, host=A)
    failed = ask(world, "resize_instance", instance_id, flavor=LARGE, host=B)
    assert world.ended(failed) is OperationState.FAILED
    for record in (world.operation(failed), replayed(world, failed)):
        instance = world.instance_by_id(instance_id)
        assert record.state is OperationState.FAILED
        assert (instance.state, instance.host) == (InstanceState.ERROR, B)
        assert (used(world, A), used(world, B)) == ((0, 0, 0), (2, 1024, 1))
        newest = record
    mood["bad"] = False
    again = replayed(world, newest.id)
    assert again.state is OperationState.SUCCEEDED
    assert "forward: it stopped at start_on_target" in told(world, again.id)
    instance = world.instance_by_id(instance_id)
    assert (instance.state, instance.flavor.vcpus) == (InstanceState.ACTIVE, 2)
    assert (used(world, A), used(world, B)) == ((0, 0, 0), (2, 1024, 1))
    check_at_rest(world)


# -- N30: an audit between "confirmed" and the source's room being given back -----------------


@pytest.mark.parametrize(("verb", "end"), [("confirm_resize", (0, 1)), ("revert_resize", (1, 0))])
def test_n30_audits_inside_a_decision_see_both_ends_held_and_then_one(
    verb: str, end: tuple[int, int]
) -> None:
    world = World(hosts=2, manifest_s=0.0)
    instance_id = built(world, SMALL, host=A)
    ask(world, "migrate_instance", instance_id)
    with audited(world, vcpus) as seen:
        decided = ask(world, verb, instance_id)
    assert seen == [(1, 1), end]
    world.audit()
    assert vcpus(world) == end
    again = replayed(world, decided)
    assert "declared done" in told(world, again.id)
    check_at_rest(world)


@pytest.mark.parametrize(
    ("verb", "call", "host", "end"),
    [("confirm_resize", "destroy", A, (0, 1)), ("revert_resize", "destroy", B, (1, 0))],
)
def test_n30_a_decision_that_failed_goes_forward_when_replayed_or_is_done_already(
    verb: str, call: str, host: str, end: tuple[int, int]
) -> None:
    mood = {"bad": True}
    world = World(hosts=2, injected_faults=moody(call, host, mood), manifest_s=0.0)
    instance_id = built(world, SMALL, host=A)
    ask(world, "migrate_instance", instance_id)
    failed = [ask(world, verb, instance_id) for _ in range(2)]
    assert [world.ended(name) for name in failed] == [OperationState.FAILED] * 2
    assert vcpus(world) == (1, 1)
    mood["bad"] = False
    with audited(world, vcpus) as seen:
        first = replayed(world, failed[0])
    assert first.state is OperationState.SUCCEEDED
    assert seen == [(1, 1), end]
    second = replayed(world, failed[1])
    assert second.state is OperationState.SUCCEEDED
    assert "declared done" in told(world, second.id)
    assert vcpus(world) == end
    check_at_rest(world)


# -- N31: an audit between the source's last step and the target's finish, with pins ----------


@pytest.mark.parametrize(("verb", "end"), [("confirm_resize", (0, 2)), ("revert_resize", (2, 0))])
def test_n31_audits_during_a_pinned_resize_leave_the_pins_of_both_ends(
    verb: str, end: tuple[int, int]
) -> None:
    world = World(hosts=2, hardware=N31_HOST, manifest_s=0.0)
    instance_id = built(world, PAIR, host=A)
    with audited(world, pinned_counts) as seen:
        ask(world, "resize_instance", instance_id, flavor=PAIR_RESIZED, host=B)
    assert seen == [(2, 0), (2, 2)]
    with audited(world, pinned_counts) as seen:
        ask(world, verb, instance_id)
    assert seen == [(2, 2), end]
    world.audit()
    assert pinned_counts(world) == end
    check_at_rest(world)


def test_n31_a_pinned_resize_that_found_no_target_goes_forward_or_is_done_already() -> None:
    mood = {"bad": True}
    world = World(
        hosts=2, hardware=N31_HOST, injected_faults=moody("spawn", B, mood), manifest_s=0.0
    )
    instance_id = built(world, PAIR, host=A)
    with audited(world, pinned_counts) as seen:
        failed = [
            ask(world, "resize_instance", instance_id, flavor=PAIR_RESIZED, host=B)
            for _ in range(2)
        ]
    assert seen == [(2, 0), (2, 2), (2, 0), (2, 2), (2, 0)]
    mood["bad"] = False
    first = replayed(world, failed[0])
    assert first.state is OperationState.SUCCEEDED
    assert pinned_counts(world) == (2, 2)
    ask(world, "confirm_resize", instance_id)
    second = replayed(world, failed[1])
    assert second.state is OperationState.SUCCEEDED
    assert "declared done" in told(world, second.id)
    assert pinned_counts(world) == (0, 2)
    check_at_rest(world)


# -- N42: a failed live migration under audit ------------------------------------------------


def both_pinned(world: World) -> tuple[frozenset[int], frozenset[int]]:
    """Return the pinned CPUs of both hosts."""
    return frozenset(pinned(world, A)), frozenset(pinned(world, B))


def test_n42_audits_around_a_failed_live_migration_change_no_pins_and_its_replay_takes_new() -> (
    None
):
    mood = {"bad": True}
    world = World(
        hosts=2, hardware=N42_HOST, injected_faults=moody("copy", A, mood), manifest_s=0.0
    )
    instance_id = built(world, PAIR, host=A)
    built(world, PAIR, host=B)
    low, all_four = frozenset({0, 1}), frozenset({0, 1, 2, 3})
    assert both_pinned(world) == (low, low)
    with audited(world, both_pinned) as seen:
        failed = ask(world, "live_migrate_instance", instance_id)
    assert world.ended(failed) is OperationState.FAILED
    assert seen == [(low, low), (low, all_four), (low, low)]
    instance = world.instance_by_id(instance_id)
    assert (instance.state, instance.host) == (InstanceState.ACTIVE, A)
    assert pins_of(world, instance_id) == {0, 1}
    with world.store.read() as uow:
        (migration,) = uow.migrations.where(instance_id=instance_id)
        assert migration.state is MigrationState.ERROR
        assert not uow.allocations.where(consumer_id=migration.id)
    check_at_rest(world)
    mood["bad"] = False
    with audited(world, both_pinned) as seen:
        again = replayed(world, failed)
    assert again.state is OperationState.SUCCEEDED
    assert seen == [(low, low), (low, all_four), (frozenset(), all_four)]
    assert pins_of(world, instance_id) == {2, 3}
    check_at_rest(world)


def pins_of(world: World, instance_id: str) -> set[int]:
    """Return the host CPUs on which an instance's vCPUs are pinned."""
    placement = world.instance_by_id(instance_id).placement
    assert placement is not None
    return {cpu for cell in placement.cells for _, cpu in cell.pinning}
