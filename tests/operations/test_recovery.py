"""What a death costs: the broker's redelivery and the sweep of the outbox, no longer wait."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from models.lifecycle import OperationState
from tests.operations.audit import check_at_rest
from tests.operations.world import PINNED, Killed, World

Ask = Callable[[World], str]


def build(world: World) -> str:
    return world.build(PINNED, count=2)


def delete(world: World) -> str:
    return world.submit("delete_instance", {"instance_id": _built(world)})


def stop(world: World) -> str:
    return world.submit("stop_instance", {"instance_id": _built(world)})


def _built(world: World) -> str:
    operation = world.build(PINNED)
    world.run_out()
    return world.instance(operation).id


@pytest.mark.parametrize("ask", [build, delete, stop])
def test_a_death_after_any_commit_costs_less_than_three_seconds(ask: Ask) -> None:
    for dies_after in range(1, 100):
        world = World(hosts=2)
        operation = ask(world)
        world.store.commits_left = dies_after
        with suppress(Killed):
            world.settle()
        died = world.store.commits_left == 0
        world.store.commits_left = -1
        if died:
            world.restart_conductor()
            world.hand_over(world.delivered[-1])  # not acknowledged, so the broker has it again
        for _ in range(2):
            world.settle()
            world.pass_time(1.25)
        assert world.ended(operation) is OperationState.SUCCEEDED, dies_after
        check_at_rest(world)
        if not died:
            assert dies_after > 3
            return
    raise AssertionError("it has no end")
