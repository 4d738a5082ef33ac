"""What a death costs: the broker's redelivery and the sweep of the outbox, no longer wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, cast

import pytest

from conductor.store import Heartbeat, Store, UnitOfWork
from models.errors import Conflict
from models.lifecycle import OperationState
from tests.operations.audit import check_at_rest
from tests.operations.test_every_operation import SCENARIOS, Scenario
from tests.operations.world import PINNED, Killed, World

Ask = Callable[[World], str]
GOES_ON_S = 25.0
"""A little more than the wait before an instruction whose reader died is sent again."""


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


def test_processes_that_died_long_ago_are_forgotten_and_hosts_never() -> None:
    world = World(hosts=1)
    day = 86_400.0
    with world.store.begin() as uow:
        for name, kind in (("c-1", "conductor"), ("s-1", "scheduler"), ("host-9", "compute")):
            uow.heartbeats.put(Heartbeat(name, kind, world.now))
    world.now += day - 1.0
    with world.store.begin() as uow:
        uow.heartbeats.put(Heartbeat("s-1", "scheduler", world.now))
    assert world.service.retire() == 0
    world.now += 2.0
    assert world.service.retire() == 1
    with world.store.read() as uow:
        assert uow.heartbeats.get("c-1") is None
        assert uow.heartbeats.get("s-1") is not None
        assert uow.heartbeats.get("host-9") is not None


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_wherever_a_conductor_dies_its_operations_go_on_within_seconds(scenario: Scenario) -> None:
    """Nothing lies longer than it takes to ask again, whichever commit was the last."""
    for dies_after in range(1, 80):
        world, _ = scenario.begin()
        world.store.commits_left = dies_after
        died = False
        try:
            world.run_out()
        except Killed:
            died = True
        world.restart_conductor()
        died_at = world.now
        world.settle()
        while world.living():
            assert world.now - died_at < GOES_ON_S, (dies_after, world.living())
            world.pass_time(1.0)
            world.settle()
        if not died:
            return
    raise AssertionError("it has no end")


class Unlucky:
    """A store in which the transaction fails once, as a deadlock would, inside a chosen step."""

    def __init__(self, store: Store, fails_at: int) -> None:
        self._store = store
        self._left = fails_at

    @contextmanager
    def begin(self) -> Iterator[UnitOfWork]:
        with self._store.begin() as uow:
            yield cast(UnitOfWork, _UnluckyWork(uow, self))

    def read(self) -> AbstractContextManager[UnitOfWork]:
        return self._store.read()

    def close(self) -> None:
        self._store.close()

    def maybe_die(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise Conflict("deadlock", "deadlock detected")


class _UnluckyWork:
    def __init__(self, uow: UnitOfWork, store: Unlucky) -> None:
        self._uow = uow
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._uow, name)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        with self._uow.savepoint():
            yield
            self._store.maybe_die()


@pytest.mark.parametrize("fails_at", range(1, 16))
def test_a_deadlock_inside_a_step_is_run_again_and_ends_no_operation(fails_at: int) -> None:
    world = World(hosts=2)
    world.store._store = Unlucky(world.store._store, fails_at)
    operation = world.build(PINNED)
    world.run_out()
    assert world.ended(operation) is OperationState.SUCCEEDED
    world.submit("migrate_instance", {"instance_id": world.instance(operation).id})
    world.run_out()
    assert world.instance(operation).host == "host-1"
    check_at_rest(world)
