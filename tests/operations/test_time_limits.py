"""What an ask is given is what it gets: 600 s are 600 s, whoever does not answer."""

from __future__ import annotations

import pytest

from models.lifecycle import InstanceState, OperationState
from models.messages.internal import SCHEDULER
from tests.operations.world import SHARED, World

LIMIT_S = 600.0


def let_time_pass(world: World, operation_id: str, without: str, step_s: float = 5.0) -> float:
    """Let all but one queue be read until the operation has ended; return how long it took."""
    began = world.now
    world.deliver("conductor")
    while not world.operation(operation_id).state.ended:
        for queue in [queue for queue in world.waiting_queues() if queue != without]:
            world.deliver(queue)
        world.pass_time(step_s)
        assert world.now - began < 3 * LIMIT_S, world.operation(operation_id)
    return world.now - began


def built(world: World, host: str = "host-0") -> str:
    build = world.build(SHARED, host=host)
    world.run_out()
    return world.instance(build).id


def deaf_without_a_canary(world: World, name: str) -> None:
    """Make a host one that hears nothing, and of which nobody has noticed it."""
    world.all_hear = True


def test_an_ask_of_a_host_is_given_up_when_its_time_is_over_and_not_later() -> None:
    world = World()
    instance_id = built(world)
    deaf_without_a_canary(world, "host-0")
    stop = world.submit("stop_instance", {"instance_id": instance_id})
    took = let_time_pass(world, stop, without="compute_host-0")
    record = world.operation(stop)
    assert record.error is not None
    assert record.error["code"] == "host_silent"
    # The stop, and the undo of it, 600 s each: no ask is ever out for longer than that.
    events = [event.at for event in world.events(stop) if event.event in ("stop", "failed")]
    assert LIMIT_S <= events[-1] - events[0] <= LIMIT_S + 10.0
    assert took <= 2 * LIMIT_S + 30.0


def test_a_question_that_no_scheduler_answers_ends_when_its_time_is_over() -> None:
    world = World()
    build = world.build(SHARED)
    took = let_time_pass(world, build, without=SCHEDULER)
    assert LIMIT_S <= took <= LIMIT_S + 20.0
    error = world.operation(build).error or {}
    assert error["code"] == "scheduler_silent"
    assert world.instance(build).state is InstanceState.ERROR


@pytest.mark.parametrize("deadline_s", [20, 100, 400])
def test_a_requests_own_deadline_holds_whoever_is_silent(deadline_s: int) -> None:
    world = World()
    body = {"name": "vm", "flavor": SHARED, "image": {"id": "img"}}
    build = world.submit("build_instances", {"instance": body, "deadline_s": deadline_s})
    took = let_time_pass(world, build, without=SCHEDULER, step_s=1.0)
    assert deadline_s <= took <= deadline_s + 5.0
    assert (world.operation(build).error or {})["code"] == "deadline_exceeded"


def test_a_host_that_dies_while_it_is_seldom_asked_is_found_out_at_once() -> None:
    world = World()
    instance_id = built(world)
    deaf_without_a_canary(world, "host-0")
    stop = world.submit("stop_instance", {"instance_id": instance_id})
    for _ in range(40):  # by now minutes lie between two asks
        for queue in [
            waiting_queue
            for waiting_queue in world.waiting_queues()
            if waiting_queue != "compute_host-0"
        ]:
            world.deliver(queue)
        world.pass_time(5.0)
    world.kill_host("host-0")
    began = world.now
    let_time_pass(world, stop, without="compute_host-0")
    assert world.now - began <= 2 * world.settings.down_after_s + 10.0
    assert world.operation(stop).state is OperationState.FAILED
    assert (world.operation(stop).error or {})["code"] == "host_down"
