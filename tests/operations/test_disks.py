"""What is on a root disk survives every operation that does not say that it is lost."""

from __future__ import annotations

import pytest

from conductor.hosts import host_administration
from models.ids import InstanceId
from models.lifecycle import InstanceState, OperationState
from tests.operations.audit import check_at_rest
from tests.operations.test_moves import BIGGER, ask, built, error_code, on_verb
from tests.operations.world import PINNED, World
from workers.hypervisor.fault_injection import InjectedFault, InjectedFaults

MARKER = "what the guest has written"


def written(world: World) -> str:
    """Build an instance on host-0 and write the marker on its disk."""
    instance_id = built(world, PINNED, host="host-0")
    world.hosts["host-0"].hypervisor.write_disk(InstanceId(instance_id), MARKER)
    return instance_id


def disk_of(world: World, instance_id: str) -> str | None:
    """Return what is on the disk of the guest where the instance lives."""
    host = world.instance_by_id(instance_id).host
    assert host is not None
    domain = world.hosts[host].hypervisor.domain(InstanceId(instance_id))
    assert domain is not None
    return domain.disk


def lose_host(world: World, name: str = "host-0") -> None:
    world.kill_host(name)
    with world.store.begin() as uow:
        host_administration.force_down(uow, name, "fenced")


STORIES = {
    "stop": [("stop_instance", {}), ("start_instance", {})],
    "cold": [("migrate_instance", {}), ("confirm_resize", {})],
    "cold and back": [("migrate_instance", {}), ("revert_resize", {})],
    "resize": [("resize_instance", {"flavor": BIGGER, "host": "host-1"}), ("confirm_resize", {})],
    "resize here": [
        ("resize_instance", {"flavor": {**PINNED, "vcpus": 1}, "host": "host-0"}),
        ("confirm_resize", {}),
    ],
    "live": [("live_migrate_instance", {})],
    "shelve": [("shelve_instance", {}), ("unshelve_instance", {})],
    "offload": [
        ("shelve_instance", {"offload": True}),
        ("unshelve_instance", {"host": "host-1"}),
    ],
    "offload later": [
        ("shelve_instance", {}),
        ("shelve_instance", {"offload": True}),
        ("unshelve_instance", {"host": "host-1"}),
    ],
    "all": [
        ("live_migrate_instance", {}),
        ("migrate_instance", {}),
        ("confirm_resize", {}),
        ("shelve_instance", {"offload": True}),
        ("unshelve_instance", {}),
        ("resize_instance", {"flavor": BIGGER}),
        ("revert_resize", {}),
    ],
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_what_is_on_the_disk_survives(story: list[tuple[str, dict[str, object]]]) -> None:
    world = World(hosts=3)
    instance_id = written(world)
    for task, arguments in story:
        operation = ask(world, task, instance_id, **arguments)
        assert world.ended(operation) is OperationState.SUCCEEDED, world.operation(operation)
        if world.instance_by_id(instance_id).host is not None:
            assert disk_of(world, instance_id) == MARKER
    assert world.instance_by_id(instance_id).state is InstanceState.ACTIVE
    check_at_rest(world)


@pytest.mark.parametrize("verb", ["offer_disk", "take_disk"])
def test_a_cold_migration_whose_disk_does_not_come_leaves_it_running_where_it_was(
    verb: str,
) -> None:
    world = World(hosts=3, injected_faults=on_verb("refused", verb, "host-0", "host-1", "host-2"))
    instance_id = written(world)
    operation = ask(world, "migrate_instance", instance_id)
    assert world.ended(operation) is OperationState.FAILED
    assert world.instance_by_id(instance_id).state is InstanceState.ACTIVE
    assert world.guests() == {instance_id: "host-0"}
    assert disk_of(world, instance_id) == MARKER
    check_at_rest(world)


def test_a_disk_that_came_damaged_is_not_believed() -> None:
    world = World(hosts=2)
    instance_id = written(world)
    world.hosts["host-1"].hypervisor.take_disk = lambda *_: "sha256:another"  # type: ignore[method-assign]  # a target that takes something else
    operation = ask(world, "migrate_instance", instance_id)
    assert world.ended(operation) is OperationState.FAILED
    assert "not that of the source" in str(world.operation(operation).error)
    assert disk_of(world, instance_id) == MARKER


@pytest.mark.parametrize("verb", ["snapshot", "power_off"])
def test_without_a_snapshot_nothing_is_offloaded(verb: str) -> None:
    world = World(hosts=1, injected_faults=on_verb("refused", verb, "host-0"))
    instance_id = written(world)
    operation = ask(world, "shelve_instance", instance_id, offload=True)
    assert world.ended(operation) is OperationState.FAILED
    assert world.instance_by_id(instance_id).state is InstanceState.ACTIVE
    assert disk_of(world, instance_id) == MARKER


def test_a_failed_unshelve_keeps_the_snapshot_for_the_next() -> None:
    fails = {"spawn"}
    begun = False

    def faults_of(_: str) -> InjectedFaults:
        return lambda call: InjectedFault(
            ending="refused" if begun and call.verb in fails else "done"
        )

    world = World(hosts=2, injected_faults=faults_of)
    instance_id = written(world)
    ask(world, "shelve_instance", instance_id, offload=True)
    begun = True
    ask(world, "unshelve_instance", instance_id)
    assert world.instance_by_id(instance_id).state is InstanceState.SHELVED_OFFLOADED
    fails.clear()
    ask(world, "unshelve_instance", instance_id)
    assert disk_of(world, instance_id) == MARKER


def test_a_move_is_not_confirmed_while_the_target_has_no_proven_disk() -> None:
    world = World(hosts=2)
    instance_id = written(world)
    ask(world, "migrate_instance", instance_id)
    world.hosts["host-1"].hypervisor.destroy(InstanceId(instance_id))
    operation = ask(world, "confirm_resize", instance_id)
    assert world.ended(operation) is OperationState.FAILED
    assert world.instance_by_id(instance_id).state is InstanceState.RESIZED
    assert world.guests() == {instance_id: "host-0"}


def test_a_move_to_a_host_that_has_died_is_reverted_and_not_confirmed() -> None:
    world = World(hosts=2)
    instance_id = written(world)
    ask(world, "migrate_instance", instance_id)
    lose_host(world, "host-1")
    assert error_code(world, ask(world, "confirm_resize", instance_id)) == "host_down"
    operation = ask(world, "revert_resize", instance_id)
    assert world.ended(operation) is OperationState.SUCCEEDED, world.operation(operation)
    assert disk_of(world, instance_id) == MARKER


def test_an_evacuation_says_in_its_history_that_the_disk_is_lost() -> None:
    world = World(hosts=2)
    instance_id = written(world)
    lose_host(world)
    operation = ask(world, "evacuate_instance", instance_id)
    assert world.ended(operation) is OperationState.SUCCEEDED
    assert disk_of(world, instance_id) == "image img"
    with world.store.read() as uow:
        told = [event.event for event in uow.events.where(operation_id=operation)]
    assert "disk-lost" in told


def test_a_shelved_instance_on_a_dead_host_is_evacuated_with_its_data() -> None:
    world = World(hosts=2)
    instance_id = written(world)
    ask(world, "shelve_instance", instance_id)
    lose_host(world)
    assert error_code(world, ask(world, "unshelve_instance", instance_id)) == "host_down"
    operation = ask(world, "evacuate_instance", instance_id)
    assert world.ended(operation) is OperationState.SUCCEEDED, world.operation(operation)
    instance = world.instance_by_id(instance_id)
    assert (instance.state, instance.host) == (InstanceState.SHELVED, "host-1")
    assert disk_of(world, instance_id) == MARKER
    ask(world, "unshelve_instance", instance_id)
    assert world.instance_by_id(instance_id).state is InstanceState.ACTIVE
    assert disk_of(world, instance_id) == MARKER


def test_a_shelved_instance_on_a_dead_host_is_offloaded_and_comes_back_with_its_data() -> None:
    world = World(hosts=2)
    instance_id = written(world)
    ask(world, "shelve_instance", instance_id)
    lose_host(world)
    operation = ask(world, "shelve_instance", instance_id, offload=True)
    assert world.ended(operation) is OperationState.SUCCEEDED, world.operation(operation)
    ask(world, "unshelve_instance", instance_id)
    assert world.instance_by_id(instance_id).host == "host-1"
    assert disk_of(world, instance_id) == MARKER
