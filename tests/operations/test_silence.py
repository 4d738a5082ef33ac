"""How long a host may be silent is the operator's to say, and every operation goes by it."""

from __future__ import annotations

import pytest

from conductor.settings import Settings, read_settings
from models.lifecycle import InstanceState, OperationState
from tests.operations.test_every_operation import SCENARIOS, Scenario
from tests.operations.world import PINNED, World

NEED_A_LIVING_HOST = {
    name: SCENARIOS[name]
    for name in ("migrate", "resize", "revert", "live-migrate", "rebuild", "shelve")
}
SILENT_S = 60
"""Longer than the time that holds when nobody sets one."""


def world_with(down_after_s: float) -> World:
    world = World()
    world.settings = read_settings({"CONDUCTOR_DOWN_AFTER_S": str(down_after_s)})
    world.restart_conductor()
    return world


def silent(world: World, name: str, seconds: int = SILENT_S) -> None:
    """Let a host be silent, and the others heard."""
    world.kill_host(name)
    for _ in range(0, seconds, 2):
        world.pass_time(2.0)


def asked(world: World, scenario: Scenario, instance_id: str) -> tuple[str, str]:
    """Ask for a scenario's operation; return its state and the code of its error."""
    subject = {scenario.subject: instance_id} if scenario.subject else {}
    id_ = world.submit(scenario.task, {**subject, **scenario.arguments})
    world.deliver("conductor")
    record = world.operation(id_)
    return record.state, (record.error or {}).get("code", "")


def prepared(world: World, scenario: Scenario) -> str:
    build = world.build(PINNED, host="host-0")
    world.run_out()
    instance_id = world.instance(build).id
    scenario.prepare(world, instance_id)
    return instance_id


@pytest.mark.parametrize("scenario", NEED_A_LIVING_HOST.values(), ids=NEED_A_LIVING_HOST.keys())
def test_a_host_silent_for_less_than_the_operator_allows_is_worked_with(scenario: Scenario) -> None:
    world = world_with(down_after_s=300)
    instance_id = prepared(world, scenario)
    silent(world, "host-0")
    state, code = asked(world, scenario, instance_id)
    assert code == ""
    assert state != OperationState.FAILED


@pytest.mark.parametrize("scenario", NEED_A_LIVING_HOST.values(), ids=NEED_A_LIVING_HOST.keys())
def test_a_host_silent_for_longer_than_the_operator_allows_is_down(scenario: Scenario) -> None:
    world = world_with(down_after_s=10)
    instance_id = prepared(world, scenario)
    silent(world, "host-0", 20)
    assert asked(world, scenario, instance_id) == (OperationState.FAILED, "host_down")


def test_an_instance_is_evacuated_as_soon_as_its_host_is_down_for_the_operator() -> None:
    world = world_with(down_after_s=10)
    build = world.build(PINNED, host="host-0")
    world.run_out()
    silent(world, "host-0", 20)
    world.submit("evacuate_instance", {"instance_id": world.instance(build).id})
    world.run_out()
    assert world.instance(build).state is InstanceState.ACTIVE
    assert world.instance(build).host != "host-0"


def test_no_instance_is_evacuated_from_a_host_that_may_still_be_silent() -> None:
    world = world_with(down_after_s=300)
    build = world.build(PINNED, host="host-0")
    world.run_out()
    silent(world, "host-0")
    evacuate = Scenario("evacuate_instance")
    state, code = asked(world, evacuate, world.instance(build).id)
    assert (state, code) == (OperationState.FAILED, "host_up")


@pytest.mark.parametrize(("down_after_s", "skipped"), [(10, ["host-0"]), (300, [])])
def test_images_are_cached_on_hosts_that_are_up_for_the_operator(
    down_after_s: float, skipped: list[str]
) -> None:
    world = world_with(down_after_s)
    cache = SCENARIOS["cache"]
    prepared(world, cache)
    silent(world, "host-0")
    id_ = world.submit(cache.task, cache.arguments)
    world.deliver("conductor")
    assert world.operation(id_).data["skipped"] == skipped


@pytest.mark.parametrize(("down_after_s", "outcome"), [(10, "refused"), (300, "forward")])
def test_a_replay_goes_by_the_same_silence(down_after_s: float, outcome: str) -> None:
    world = world_with(down_after_s)
    build = world.build(PINNED, host="host-0")
    world.run_out()
    migrate = world.submit(
        "migrate_instance", {"instance_id": world.instance(build).id, "deadline_s": 1}
    )
    world.deliver("conductor")
    world.now += 5
    world.run_out()
    assert world.ended(migrate) is OperationState.FAILED
    silent(world, "host-0")
    replay = world.submit("replay_operation", {"operation_id": migrate, "dry_run": True})
    world.deliver("conductor")
    assert world.operation(replay).data["outcome"] == outcome


def test_nobody_who_sets_nothing_waits_other_than_thirty_seconds() -> None:
    assert Settings().down_after_s == 30.0
