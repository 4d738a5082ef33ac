"""What moves do, hold and leave: cold, resized, live, evacuated; confirmed or reverted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from conductor.hosts import host_administration
from conductor.store import CatalogueEntry
from models.ids import InstanceId
from models.lifecycle import InstanceState, MigrationState, OperationState, PowerState
from tests.operations.audit import check_at_any_time, check_at_rest
from tests.operations.world import PINNED, World
from workers.hypervisor.fault_injection import Call, Ending, InjectedFault, InjectedFaults

BIGGER = {"vcpus": 3, "memory_mb": 2048, "extra_specs": {"hw:cpu_policy": "dedicated"}}
WHOLE = {"vcpus": 4, "memory_mb": 1024, "extra_specs": {"hw:cpu_policy": "dedicated"}}


def on_verb(ending: Ending, verb: str, *hosts: str) -> Callable[[str], InjectedFaults]:
    """Return faults under which these hosts end every call of a verb so; all else is done."""

    def faults_of(host: str) -> InjectedFaults:
        def injected_fault(call: Call) -> InjectedFault:
            return InjectedFault(ending=ending if call.verb == verb and host in hosts else "done")

        return injected_fault

    return faults_of


def built(world: World, flavor: Mapping[str, object], **fields: Any) -> str:
    """Build one instance and return its id."""
    operation = world.build(flavor, **fields)
    world.run_out()
    assert world.ended(operation) is OperationState.SUCCEEDED
    return world.instance(operation).id


def ask(world: World, task: str, instance_id: str, **arguments: object) -> str:
    """Ask for something and let it end, auditing after every message."""
    operation = world.submit(task, {"instance_id": instance_id, **arguments})
    while queues := world.waiting_queues():
        world.deliver(queues[0])
        check_at_any_time(world)
    world.run_out()
    return operation


def error_code(world: World, operation: str) -> str:
    """Return the code of the error that an operation ended with."""
    return str((world.operation(operation).error or {}).get("code"))


def image_of(world: World, instance_id: str) -> str:
    """Return the id of an instance's image."""
    image = world.instance_by_id(instance_id).image
    return image.id if image else ""


def test_a_cold_migration_awaits_confirmation_with_room_kept_on_the_source() -> None:
    world = World(hosts=2)
    instance_id = built(world, WHOLE, host="host-0")
    operation = ask(world, "migrate_instance", instance_id)
    assert world.ended(operation) is OperationState.SUCCEEDED
    instance = world.instance_by_id(instance_id)
    assert instance.state is InstanceState.RESIZED
    assert instance.host == "host-1"
    assert world.host("host-0").used["PCPU"] == 4
    assert world.host("host-1").used["PCPU"] == 4
    newcomer = world.build(WHOLE)
    world.run_out()
    assert world.ended(newcomer) is OperationState.FAILED  # N38: the room is kept


def test_confirming_gives_the_source_back_and_reverting_the_target() -> None:
    for verb, home, away in (
        ("confirm_resize", "host-1", "host-0"),
        ("revert_resize", "host-0", "host-1"),
    ):
        world = World(hosts=2)
        instance_id = built(world, PINNED, host="host-0")
        ask(world, "resize_instance", instance_id, flavor=BIGGER, host="host-1")
        operation = ask(world, verb, instance_id)
        assert world.ended(operation) is OperationState.SUCCEEDED, world.operation(operation)
        instance = world.instance_by_id(instance_id)
        assert instance.state is InstanceState.ACTIVE
        assert instance.host == home
        assert instance.flavor.vcpus == (3 if verb == "confirm_resize" else 2)
        assert world.host(home).used["PCPU"] == instance.flavor.vcpus
        assert not world.host(away).used.get("PCPU")
        check_at_rest(world)


def test_the_availability_zone_follows_the_instance_there_and_back() -> None:
    for verb, zone in (("confirm_resize", "west"), ("revert_resize", "east")):
        world = World(hosts=2)
        with world.store.begin() as uow:
            for name, host in (("east", "host-0"), ("west", "host-1")):
                body = {"name": name, "hosts": [host]}
                uow.catalogue.put(CatalogueEntry("zone", name, body, uow.now))
        instance_id = built(world, PINNED, host="host-0")
        ask(world, "migrate_instance", instance_id)
        assert world.instance_by_id(instance_id).availability_zone == "west"
        ask(world, verb, instance_id)
        assert world.instance_by_id(instance_id).availability_zone == zone


@pytest.mark.parametrize("verb", ["confirm_resize", "revert_resize"])
def test_a_resize_on_its_own_host_holds_both_and_releases_exactly_one(verb: str) -> None:
    world = World(hosts=1, hardware=None)
    instance_id = built(world, {**PINNED, "vcpus": 1})
    operation = ask(world, "resize_instance", instance_id, flavor=PINNED)
    assert world.ended(operation) is OperationState.SUCCEEDED, world.operation(operation)
    assert world.host("host-0").used["PCPU"] == 3
    ask(world, verb, instance_id)
    instance = world.instance_by_id(instance_id)
    assert instance.state is InstanceState.ACTIVE
    assert world.host("host-0").used["PCPU"] == instance.flavor.vcpus
    check_at_rest(world)


def test_unpinned_to_pinned_counts_each_on_its_side() -> None:
    world = World(hosts=2)
    instance_id = built(world, {"vcpus": 2, "memory_mb": 512}, host="host-0")
    ask(world, "resize_instance", instance_id, flavor=PINNED, host="host-1")
    assert world.host("host-0").used.get("VCPU") == 2
    assert world.host("host-1").used.get("PCPU") == 2
    assert not world.host("host-1").used.get("VCPU")
    ask(world, "confirm_resize", instance_id)
    assert not any(world.host("host-0").used.values())
    check_at_rest(world)


def test_a_target_that_refuses_is_left_for_another_while_the_guest_runs_on() -> None:
    world = World(hosts=3, injected_faults=on_verb("refused", "spawn", "host-1"))
    instance_id = built(world, PINNED, host="host-0")
    operation = ask(world, "migrate_instance", instance_id)
    assert world.ended(operation) is OperationState.SUCCEEDED
    assert world.instance_by_id(instance_id).host == "host-2"
    check_guests(world, instance_id, {"host-0", "host-2"})


def check_guests(world: World, instance_id: str, hosts: set[str]) -> None:
    """Say where the hypervisors have a guest of the instance."""
    found = {
        name
        for name, host in world.hosts.items()
        if host.hypervisor.domain(InstanceId(instance_id)) is not None
    }
    assert found == hosts


def test_a_move_that_no_target_takes_leaves_everything_as_it_was() -> None:
    world = World(hosts=2, injected_faults=on_verb("refused", "spawn", "host-1"))
    instance_id = built(world, PINNED, host="host-0")
    before = world.instance_by_id(instance_id)
    operation = ask(world, "migrate_instance", instance_id)
    assert world.ended(operation) is OperationState.FAILED
    after = world.instance_by_id(instance_id)
    assert (after.state, after.host, after.placement) == (
        InstanceState.ACTIVE,
        "host-0",
        before.placement,
    )
    assert not world.host("host-1").used.get("PCPU")
    check_at_rest(world)


def test_a_failure_behind_the_switch_leaves_exactly_the_new_flavor_on_the_new_host() -> None:
    world = World(hosts=2, injected_faults=on_verb("refused", "power_on", "host-1"))
    instance_id = built(world, PINNED, host="host-0")
    operation = ask(world, "resize_instance", instance_id, flavor=BIGGER, host="host-1")
    assert world.ended(operation) is OperationState.FAILED
    instance = world.instance_by_id(instance_id)
    assert instance.state is InstanceState.ERROR
    assert instance.host == "host-1"
    assert world.host("host-1").used["PCPU"] == 3
    assert not any(world.host("host-0").used.values())


def test_a_move_from_a_dead_source_is_refused_before_anything_is_claimed() -> None:
    world = World(hosts=2)
    instance_id = built(world, PINNED, host="host-0")
    world.kill_host("host-0")
    world.pass_time(100.0)
    for task in ("migrate_instance", "live_migrate_instance"):
        operation = ask(world, task, instance_id)
        assert error_code(world, operation) == "host_down"
    assert not world.host("host-1").used.get("PCPU")


def test_a_live_migration_takes_new_pins_and_leaves_nothing_behind() -> None:
    world = World(hosts=2)
    instance_id = built(world, PINNED, host="host-0")
    other = built(world, PINNED, host="host-1")
    operation = ask(world, "live_migrate_instance", instance_id)
    assert world.ended(operation) is OperationState.SUCCEEDED, world.operation(operation)
    instance = world.instance_by_id(instance_id)
    assert (instance.host, instance.state) == ("host-1", InstanceState.ACTIVE)
    assert instance.power_state is PowerState.RUNNING
    assert not any(world.host("host-0").used.values())
    assert world.host("host-1").used["PCPU"] == 4
    assert world.instance_by_id(other).state is InstanceState.ACTIVE
    check_at_rest(world)


def test_a_live_migration_whose_copy_fails_leaves_the_source_as_it_was() -> None:
    world = World(hosts=2, injected_faults=on_verb("refused", "copy", "host-0"))
    instance_id = built(world, PINNED, host="host-0")
    before = world.instance_by_id(instance_id)
    operation = ask(world, "live_migrate_instance", instance_id)
    assert world.ended(operation) is OperationState.FAILED
    after = world.instance_by_id(instance_id)
    assert (after.host, after.placement, after.state) == (
        before.host,
        before.placement,
        InstanceState.ACTIVE,
    )
    assert world.hosts["host-0"].hypervisor.domains()[0].power == "running"
    assert not any(world.host("host-1").used.values())
    check_at_rest(world)


def test_an_evacuation_supersedes_a_stop_that_waits_for_the_dead_host() -> None:
    world = World(hosts=2)
    instance_id = built(world, PINNED, host="host-0")
    world.kill_host("host-0")
    stop = world.submit("stop_instance", {"instance_id": instance_id})
    world.settle()
    with world.store.begin() as uow:
        host_administration.force_down(uow, "host-0", "fenced")
    evacuate = ask(world, "evacuate_instance", instance_id)
    assert world.ended(evacuate) is OperationState.SUCCEEDED, world.operation(evacuate)
    assert world.ended(stop) in (OperationState.CANCELLED, OperationState.FAILED)
    instance = world.instance_by_id(instance_id)
    assert (instance.host, instance.state) == ("host-1", InstanceState.ACTIVE)
    assert not any(world.host("host-0").used.values())
    world.restart_host("host-0")
    world.run_out()
    check_at_rest(world)


def test_an_instance_on_a_living_host_is_not_evacuated() -> None:
    world = World(hosts=2)
    instance_id = built(world, PINNED, host="host-0")
    operation = ask(world, "evacuate_instance", instance_id)
    assert error_code(world, operation) == "host_up"


def test_a_forced_evacuation_skips_the_rules_about_hosts_but_not_their_room() -> None:
    world = World(hosts=2)
    instance_id = built(world, WHOLE, host="host-0")
    world.kill_host("host-0")
    with world.store.begin() as uow:
        host_administration.force_down(uow, "host-0", None)
        host_administration.set_enabled(uow, "host-1", enabled=False, reason="kept empty")
    obeying = ask(world, "evacuate_instance", instance_id, host="host-1")
    assert "1 is disabled" in str(world.operation(obeying).error)
    homeless = ask(world, "evacuate_instance", instance_id, force=True)
    assert error_code(world, homeless) == "host_missing"
    forced = ask(world, "evacuate_instance", instance_id, host="host-1", force=True)
    assert world.ended(forced) is OperationState.SUCCEEDED
    assert world.host("host-1").used["PCPU"] == 4
    world.restart_host("host-0")
    world.run_out()
    check_at_rest(world)


def test_a_forced_evacuation_to_a_full_host_is_refused() -> None:
    world = World(hosts=2)
    instance_id = built(world, WHOLE, host="host-0")
    built(world, PINNED, host="host-1")
    world.kill_host("host-0")
    with world.store.begin() as uow:
        host_administration.force_down(uow, "host-0", None)
    forced = ask(world, "evacuate_instance", instance_id, host="host-1", force=True)
    assert error_code(world, forced) == "no_valid_host"
    assert world.instance_by_id(instance_id).host == "host-0"
    check_at_rest(world)


def test_shelved_it_keeps_its_host_and_offloaded_it_gives_it_up() -> None:
    world = World(hosts=1)
    instance_id = built(world, PINNED)
    ask(world, "shelve_instance", instance_id)
    assert world.instance_by_id(instance_id).state is InstanceState.SHELVED
    assert world.host("host-0").used["PCPU"] == 2
    ask(world, "unshelve_instance", instance_id)
    assert world.instance_by_id(instance_id).state is InstanceState.ACTIVE
    ask(world, "shelve_instance", instance_id, offload=True)
    assert world.instance_by_id(instance_id).state is InstanceState.SHELVED_OFFLOADED
    assert not any(world.host("host-0").used.values())
    assert world.guests() == {}
    ask(world, "unshelve_instance", instance_id)
    assert world.instance_by_id(instance_id).state is InstanceState.ACTIVE
    check_at_rest(world)


def test_an_unshelve_without_room_leaves_it_offloaded_with_nothing_claimed_and_says_why() -> None:
    world = World(hosts=1)
    instance_id = built(world, WHOLE)
    ask(world, "shelve_instance", instance_id, offload=True)
    built(world, WHOLE)
    operation = ask(world, "unshelve_instance", instance_id)
    assert world.ended(operation) is OperationState.FAILED
    instance = world.instance_by_id(instance_id)
    assert instance.state is InstanceState.SHELVED_OFFLOADED
    assert (instance.fault or {})["code"] == "no_valid_host"
    check_at_rest(world)


def test_deleting_a_moved_instance_leaves_nothing_on_either_end() -> None:
    world = World(hosts=2)
    instance_id = built(world, PINNED, host="host-0")
    ask(world, "migrate_instance", instance_id)
    ask(world, "delete_instance", instance_id)
    assert world.guests() == {}
    assert not any(v for name in world.hosts for v in world.host(name).used.values())
    with world.store.read() as uow:
        assert [m.state for m in uow.migrations.where()] == [MigrationState.CONFIRMED]
    check_at_rest(world)


def test_a_move_that_nobody_decides_is_confirmed_by_itself_once() -> None:
    world = World(hosts=2)
    instance_id = built(world, PINNED, host="host-0")
    ask(world, "migrate_instance", instance_id)
    assert world.service.confirm_old_moves() == 0
    world.pass_time(86_500.0)
    assert world.service.confirm_old_moves() == 1
    assert world.service.confirm_old_moves() in (0, 1)
    world.run_out()
    assert world.instance_by_id(instance_id).state is InstanceState.ACTIVE
    assert not any(world.host("host-0").used.values())
    check_at_rest(world)


@pytest.mark.parametrize("task", ["migrate_instance", "live_migrate_instance"])
def test_a_move_that_failed_still_says_where_it_was_to_go(task: str) -> None:
    for named in (None, "host-1"):
        world = World(hosts=2, injected_faults=on_verb("refused", "spawn", "host-1"))
        instance_id = built(world, PINNED, host="host-0")
        operation = ask(world, task, instance_id, host=named)
        assert world.ended(operation) is OperationState.FAILED
        with world.store.read() as uow:
            (move,) = uow.migrations.where(operation_id=operation)
        assert (move.state, move.target, move.target_placement) == (
            MigrationState.ERROR,
            "host-1",
            None,
        )
