"""Replaying what failed: done, forward, back or refused, always by a new operation."""

from __future__ import annotations

from collections.abc import Callable

from models.lifecycle import InstanceState, OperationState
from tests.operations.audit import check_at_rest
from tests.operations.test_moves import ask, built, on_verb
from tests.operations.world import PINNED, World
from workers.hypervisor.fates import Call, Fate, Fates

WHOLE = {"vcpus": 4, "memory_mb": 1024, "extra_specs": {"hw:cpu_policy": "dedicated"}}


def moody(verb: str, host: str, mood: dict[str, bool]) -> Callable[[str], Fates]:
    """Return fates under which a host refuses a verb for as long as `mood["bad"]`."""

    def fates_of(name: str) -> Fates:
        def fate(call: Call) -> Fate:
            bad = name == host and call.verb == verb and mood["bad"]
            return Fate(ending="refused" if bad else "done")

        return fate

    return fates_of


def replay(world: World, operation_id: str, *, dry_run: bool = False) -> str:
    """Replay an operation and let it end."""
    new = world.submit("replay_operation", {"operation_id": operation_id, "dry_run": dry_run})
    world.run_out()
    return new


def test_a_failed_migration_goes_forward_from_the_start_once_a_target_takes_it() -> None:
    mood = {"bad": True}
    world = World(hosts=2, fates=moody("spawn", "host-1", mood))
    instance_id = built(world, PINNED, host="host-0")
    failed = ask(world, "migrate_instance", instance_id)
    assert world.ended(failed) is OperationState.FAILED
    mood["bad"] = False
    again = replay(world, failed)
    record = world.operation(again)
    assert (record.state, record.kind, record.replay_of) == (
        OperationState.SUCCEEDED,
        "migrate_instance",
        failed,
    )
    assert world.instance_by_id(instance_id).host == "host-1"
    ask(world, "confirm_resize", instance_id)
    check_at_rest(world)


def test_a_failed_build_is_replayed_for_the_same_instances() -> None:
    world = World(hosts=1)
    in_the_way = built(world, WHOLE)
    failed = world.build(WHOLE)
    world.run_out()
    ask(world, "delete_instance", in_the_way)
    again = replay(world, failed)
    assert world.ended(again) is OperationState.SUCCEEDED, world.operation(again)
    assert world.instance(failed).state is InstanceState.ACTIVE
    check_at_rest(world)


def test_a_replay_of_what_has_come_true_is_declared_done_and_does_nothing() -> None:
    mood = {"bad": True}
    world = World(hosts=2, fates=moody("spawn", "host-1", mood))
    instance_id = built(world, PINNED, host="host-0")
    failed = ask(world, "migrate_instance", instance_id)
    mood["bad"] = False
    ask(world, "migrate_instance", instance_id)
    ask(world, "confirm_resize", instance_id)
    again = replay(world, failed)
    assert world.ended(again) is OperationState.SUCCEEDED
    with world.store.read() as uow:
        told = [each.detail for each in uow.events.where(operation_id=again)]
    assert any("declared done: it is on host-1 already" in each for each in told)
    check_at_rest(world)


def test_a_replay_of_a_move_of_a_deleted_instance_is_refused_with_the_conflict() -> None:
    world = World(hosts=2, fates=on_verb("refused", "spawn", "host-1"))
    instance_id = built(world, PINNED, host="host-0")
    failed = ask(world, "migrate_instance", instance_id)
    ask(world, "delete_instance", instance_id)
    again = replay(world, failed)
    error = world.operation(again).error
    assert world.ended(again) is OperationState.FAILED
    assert error is not None
    assert error["code"] == "replay_refused"
    assert "has been deleted" in error["message"]
    check_at_rest(world)


def test_a_failure_behind_the_switch_is_taken_up_where_it_stopped() -> None:
    mood = {"bad": True}
    world = World(hosts=2, fates=moody("power_on", "host-1", mood))
    instance_id = built(world, PINNED, host="host-0")
    failed = ask(world, "migrate_instance", instance_id)
    assert world.instance_by_id(instance_id).state is InstanceState.ERROR
    mood["bad"] = False
    again = replay(world, failed)
    assert world.ended(again) is OperationState.SUCCEEDED, world.operation(again)
    instance = world.instance_by_id(instance_id)
    assert (instance.state, instance.host) == (InstanceState.ACTIVE, "host-1")


def test_asking_what_a_replay_would_do_does_nothing() -> None:
    world = World(hosts=2, fates=on_verb("refused", "spawn", "host-1"))
    instance_id = built(world, PINNED, host="host-0")
    failed = ask(world, "migrate_instance", instance_id)
    asked = replay(world, failed, dry_run=True)
    record = world.operation(asked)
    assert record.state is OperationState.SUCCEEDED
    assert record.data["outcome"] == "forward"
    assert world.instance_by_id(instance_id).task_state is None
    check_at_rest(world)


def test_only_one_replay_of_an_operation_runs_and_a_done_one_is_not_repeated() -> None:
    world = World(hosts=1)
    in_the_way = built(world, WHOLE)
    failed = world.build(WHOLE)
    world.run_out()
    ask(world, "delete_instance", in_the_way)
    assert world.ended(replay(world, failed)) is OperationState.SUCCEEDED
    second = replay(world, failed)
    assert world.operation(second).error is not None
    assert world.ended(second) is OperationState.FAILED
    check_at_rest(world)
