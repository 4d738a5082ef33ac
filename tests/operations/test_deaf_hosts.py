"""A host that beats but hears nothing: known within a minute, not chosen, gone on without."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conductor.hosts.canary import mark_unroutable
from conductor.liveness import host_is_up, state_of
from models.lifecycle import HostState, OperationState
from models.messages.internal import CANARY, REPORTS
from tests.operations.audit import check_at_rest
from tests.operations.world import SHARED, World

DEAF = "compute_host-0"


def live(world: World, seconds: float, without: str = DEAF, step_s: float = 5.0) -> None:
    """Let time pass with all queues read but one."""
    for _ in range(round(seconds / step_s)):
        settle(world, without)
        world.pass_time(step_s)
        settle(world, without)


def settle(world: World, without: str = DEAF) -> None:
    while queues := [queue for queue in world.waiting_queues() if queue != without]:
        world.deliver(queues[0])


def state(world: World, name: str = "host-0") -> tuple[HostState, str | None]:
    with world.store.read() as uow:
        return state_of(world.host(name), up=host_is_up(uow, name, 30.0))


def test_a_host_that_beats_and_reads_nothing_is_degraded_within_a_minute() -> None:
    world = World()
    live(world, 60.0)
    assert state(world)[0] is HostState.DEGRADED
    assert DEAF in (state(world)[1] or "")
    assert {state(world, name)[0] for name in ("host-1", "host-2")} == {HostState.UP}


def test_hosts_that_hear_stay_up_for_good() -> None:
    world = World()
    live(world, 600.0, without="none")
    assert {state(world, name)[0] for name in world.hosts} == {HostState.UP}


def test_a_canary_costs_one_message_a_host_and_twenty_seconds() -> None:
    world = World(hosts=2)
    live(world, 600.0, without="none", step_s=5.0)
    canaries = [outgoing for outgoing in world.delivered if outgoing.task == CANARY]
    assert len(canaries) <= 2 * (600 / 20 + 1)


def test_canaries_do_not_pile_up_before_a_host_that_reads_nothing() -> None:
    world = World()
    live(world, 3_600.0, step_s=10.0)
    assert world.bus.depths()[DEAF] <= 3_600 / 120 + 5


def test_a_deaf_host_is_not_chosen_and_hears_again_as_soon_as_it_reads() -> None:
    world = World()
    live(world, 60.0)
    builds = [world.build(SHARED) for _ in range(6)]
    live(world, 10.0)
    assert {world.instance(build).host for build in builds} == {"host-1", "host-2"}
    live(world, 10.0, without="none")
    assert state(world)[0] is HostState.UP


def test_a_build_that_waits_for_a_host_found_deaf_goes_to_another_at_once() -> None:
    world = World()
    build = world.build(SHARED)
    while queues := [q for q in world.waiting_queues() if not q.startswith("compute_")]:
        world.deliver(queues[0])
    host = world.instance(build).host or ""
    live(world, 80.0, without=f"compute_{host}")
    assert world.ended(build) is OperationState.SUCCEEDED
    assert world.instance(build).host != host
    live(world, 300.0, without="none")
    assert state(world, host)[0] is HostState.UP
    check_at_rest(world)


@pytest.mark.parametrize("task", ["stop_instance", "rebuild_instance"])
def test_what_only_a_deaf_host_can_do_is_refused_at_once_with_that_reason(task: str) -> None:
    world = World()
    build = world.build(SHARED, host="host-0")
    world.run_out()
    live(world, 60.0)
    more = {"image": {"id": "img-2"}} if task == "rebuild_instance" else {}
    asked = world.submit(task, {"instance_id": world.instance(build).id, **more})
    live(world, 10.0)
    assert world.ended(asked) is OperationState.FAILED
    assert (world.operation(asked).error or {})["code"] == "host_deaf"


def test_while_nobody_reads_reports_no_host_is_taken_for_deaf() -> None:
    world = World()
    live(world, 30.0, without="none")
    for _ in range(30):
        world.now += 10.0
        world.beat()
        world.service.tick()
    while world.bus.depths().get(REPORTS):
        world.deliver(REPORTS)
    assert {state(world, name)[0] for name in world.hosts} == {HostState.UP}
    live(world, 100.0, without="none")
    assert {state(world, name)[0] for name in world.hosts} == {HostState.UP}


def test_a_worker_that_begins_anew_is_given_time_to_hear() -> None:
    world = World()
    live(world, 20.0)
    world.kill_host("host-0")
    live(world, 120.0)
    world.restart_host("host-0")
    live(world, 10.0)
    assert state(world)[0] is HostState.UP


def test_a_queue_that_nothing_reaches_is_named_and_its_host_gone_on_without() -> None:
    world = World()
    with world.store.begin() as uow:
        assert mark_unroutable(uow, [DEAF]) == ["host-0"]
    assert state(world) == (HostState.DEGRADED, f"deaf: its queue {DEAF} is missing or not bound")
    live(world, 60.0, without="none")
    assert state(world)[0] is HostState.UP


def test_a_host_degraded_for_another_reason_stays_so_when_it_hears() -> None:
    world = World()
    live(world, 30.0, without="none")
    with world.store.begin() as uow:
        host = uow.hosts.lock("host-0")
        assert host is not None
        uow.hosts.save(replace(host, degraded="a person said so", version=host.version + 1))
    live(world, 100.0)
    live(world, 100.0, without="none")
    assert state(world) == (HostState.DEGRADED, "a person said so")
