"""Replaying what failed: done, forward, back or refused, always by a new operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conductor.store import OperationRecord
from models.lifecycle import InstanceState, OperationState
from models.messages.internal import CONDUCTOR
from tests.operations.audit import check_at_rest
from tests.operations.test_moves import ask, built, error_code, image_of, on_verb
from tests.operations.world import PINNED, World
from workers.hypervisor.fault_injection import Call, InjectedFault, InjectedFaults

A, B = "host-0", "host-1"
SMALL = {"vcpus": 1, "memory_mb": 512, "root_gb": 1}
WHOLE = {"vcpus": 4, "memory_mb": 1024, "extra_specs": {"hw:cpu_policy": "dedicated"}}


def moody(verb: str, host: str, mood: dict[str, bool]) -> Callable[[str], InjectedFaults]:
    """Return faults under which a host refuses a verb for as long as `mood["bad"]`."""

    def faults_of(name: str) -> InjectedFaults:
        def injected_fault(call: Call) -> InjectedFault:
            bad = name == host and call.verb == verb and mood["bad"]
            return InjectedFault(ending="refused" if bad else "done")

        return injected_fault

    return faults_of


def replay(world: World, operation_id: str, *, dry_run: bool = False) -> str:
    """Replay an operation and let it end."""
    new = world.submit("replay_operation", {"operation_id": operation_id, "dry_run": dry_run})
    world.run_out()
    return new


def told(world: World, operation_id: str) -> str:
    """Return the story of an operation in one text."""
    with world.store.read() as uow:
        events = uow.events.where(operation_id=operation_id)
    return "\n".join(f"{event.event}: {event.detail}" for event in events)


def replayed(world: World, operation_id: str) -> OperationRecord:
    """Replay an operation and return the new one, which points to the old."""
    record = world.operation(replay(world, operation_id))
    assert record.replay_of == operation_id
    return record


def test_a_failed_migration_goes_forward_from_the_start_once_a_target_takes_it() -> None:
    mood = {"bad": True}
    world = World(hosts=2, injected_faults=moody("spawn", "host-1", mood))
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
    world = World(hosts=2, injected_faults=moody("spawn", "host-1", mood))
    instance_id = built(world, PINNED, host="host-0")
    failed = ask(world, "migrate_instance", instance_id)
    mood["bad"] = False
    ask(world, "migrate_instance", instance_id)
    ask(world, "confirm_resize", instance_id)
    again = replay(world, failed)
    assert world.ended(again) is OperationState.SUCCEEDED
    with world.store.read() as uow:
        told = [event.detail for event in uow.events.where(operation_id=again)]
    assert any("declared done: it is on host-1 already" in name for name in told)
    check_at_rest(world)


def test_a_replay_of_a_move_of_a_deleted_instance_is_refused_with_the_conflict() -> None:
    world = World(hosts=2, injected_faults=on_verb("refused", "spawn", "host-1"))
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
    world = World(hosts=2, injected_faults=moody("power_on", "host-1", mood))
    instance_id = built(world, PINNED, host="host-0")
    failed = ask(world, "migrate_instance", instance_id)
    assert world.instance_by_id(instance_id).state is InstanceState.ERROR
    mood["bad"] = False
    again = replay(world, failed)
    assert world.ended(again) is OperationState.SUCCEEDED, world.operation(again)
    instance = world.instance_by_id(instance_id)
    assert (instance.state, instance.host) == (InstanceState.ACTIVE, "host-1")


def test_asking_what_a_replay_would_do_does_nothing() -> None:
    world = World(hosts=2, injected_faults=on_verb("refused", "spawn", "host-1"))
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


def failed_once(refused: tuple[str, str], task: str, **arguments: Any) -> tuple[World, str, str]:
    """Return a world where an operation failed by a verb of a host that is well again now."""
    verb, host = refused
    mood = {"bad": True}
    world = World(hosts=3, injected_faults=moody(verb, host, mood))
    instance_id = built(world, SMALL, host=A)
    failed = ask(world, task, instance_id, **arguments)
    assert world.ended(failed) is OperationState.FAILED
    mood["bad"] = False
    return world, instance_id, failed


def test_a_move_to_a_named_host_is_not_done_because_the_instance_is_on_a_third() -> None:
    world, instance_id, failed = failed_once(("spawn", B), "migrate_instance", host=B)
    ask(world, "live_migrate_instance", instance_id, host="host-2")
    again = replayed(world, failed)
    assert again.state is OperationState.SUCCEEDED
    assert "forward" in told(world, again.id)
    assert world.instance_by_id(instance_id).host == B


def test_what_has_been_rebuilt_or_shelved_since_is_done_already() -> None:
    for verb, task, arguments in (
        ("rebuild", "rebuild_instance", {"image": {"id": "img-2"}}),
        ("snapshot", "shelve_instance", {"offload": True}),
    ):
        world, instance_id, failed = failed_once((verb, A), task, **arguments)
        ask(world, task, instance_id, **arguments)
        again = replayed(world, failed)
        assert again.state is OperationState.SUCCEEDED
        assert "declared done" in told(world, again.id)
        check_at_rest(world)


def test_what_is_shelved_but_not_offloaded_as_asked_is_not_done() -> None:
    world, instance_id, failed = failed_once(("snapshot", A), "shelve_instance", offload=True)
    ask(world, "shelve_instance", instance_id)
    again = replayed(world, failed)
    assert "forward" in told(world, again.id)
    assert world.instance_by_id(instance_id).state is InstanceState.SHELVED_OFFLOADED


def test_what_has_been_unshelved_since_is_done_already() -> None:
    mood = {"bad": False}
    world = World(hosts=1, injected_faults=moody("spawn", A, mood))
    instance_id = built(world, SMALL)
    ask(world, "shelve_instance", instance_id, offload=True)
    mood["bad"] = True
    failed = ask(world, "unshelve_instance", instance_id)
    mood["bad"] = False
    ask(world, "unshelve_instance", instance_id)
    again = replayed(world, failed)
    assert again.state is OperationState.SUCCEEDED
    assert "declared done" in told(world, again.id)
    check_at_rest(world)


def test_a_replay_of_what_was_refused_at_the_door_waits_for_nobody_and_overtakes_nobody() -> None:
    world = World(hosts=1)
    instance_id = built(world, PINNED)
    running = world.submit("stop_instance", {"instance_id": instance_id})
    world.deliver(CONDUCTOR)
    refused = world.submit("rebuild_instance", {"instance_id": instance_id, "image": {"id": "two"}})
    world.deliver(CONDUCTOR)
    assert error_code(world, refused) == "instance_busy"
    again = world.submit("replay_operation", {"operation_id": refused})
    world.deliver(CONDUCTOR)
    record = world.operation(again)
    assert (record.state, record.replay_of) == (OperationState.FAILED, refused)
    assert error_code(world, again) == "replay_refused"
    assert (record.error or {})["data"]["conflicts"] == [
        f"stop_instance {running} runs on instance {instance_id}"
    ]
    world.run_out()
    third = replayed(world, refused)
    assert third.state is OperationState.SUCCEEDED
    assert third.instance_id == instance_id
    assert image_of(world, instance_id) == "two"
    check_at_rest(world)


def test_a_replay_of_what_was_never_a_request_is_refused_and_points_to_it() -> None:
    world = World(hosts=1)
    instance_id = built(world, PINNED)
    wrong = world.submit("stop_instance", {"instance_id": instance_id, "when": "now"})
    world.run_out()
    for dry_run in (False, True):
        record = world.operation(replay(world, wrong, dry_run=dry_run))
        assert record.replay_of == wrong
        if dry_run:
            assert record.data["outcome"] == "refused"
        else:
            assert (record.error or {})["data"]["conflicts"] == ["when is not a known field"]


def test_asking_first_is_in_nobodys_way() -> None:
    mood = {"bad": True}
    world = World(hosts=2, injected_faults=moody("spawn", "host-1", mood))
    instance_id = built(world, PINNED, host="host-0")
    failed = ask(world, "migrate_instance", instance_id)
    mood["bad"] = False
    for _ in range(2):
        asked = world.operation(replay(world, failed, dry_run=True))
        assert asked.data["outcome"] == "forward", asked.data
    assert replayed(world, failed).state is OperationState.SUCCEEDED
    assert world.instance_by_id(instance_id).host == "host-1"
