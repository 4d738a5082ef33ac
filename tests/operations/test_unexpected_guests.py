"""A guest is removed because an operation removed it, never because it is not known."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest

from conductor.hosts.reconciliation import is_leftover, why_unexpected
from conductor.store import Registration, Removal
from models.ids import InstanceId
from models.lifecycle import InstanceState, OperationState
from models.messages.guests.guest_definition import GuestDefinition
from models.messages.internal import Domain
from tests.contracts.store.records import an_instance
from tests.operations.audit import check_at_rest
from tests.operations.copies import copied, restore
from tests.operations.world import PINNED, SHARED, World
from workers.hypervisor.ports import GuestDomain
from workers.journal.memory_journal import MemoryJournal

ID = str(uuid.uuid5(uuid.NAMESPACE_OID, "a guest"))


def put_guest(world: World, host: str, name: str, **changes: Any) -> None:
    """Have a guest on a host that nobody has asked us for."""
    spec = GuestDefinition(name="theirs", vcpus=1, memory_mib=64, disk_gb=1)
    hypervisor = world.hosts[host].hypervisor
    domain = replace(GuestDomain(InstanceId(name), "running", spec), **changes)
    hypervisor._domains[InstanceId(name)] = domain


def restart_all(world: World) -> None:
    """Let every worker register anew, and list its guests often enough."""
    for name in world.hosts:
        world.kill_host(name)
        world.restart_host(name)
    world.settle()
    for _ in range(3):
        world.pass_time(61.0)
        world.settle()


def registration(world: World, host: str) -> Registration:
    with world.store.read() as uow:
        found = uow.registrations.get(host)
    assert found is not None
    return found


def reasons(world: World, host: str) -> dict[str, str]:
    return {row["name"]: row["reason"] for row in registration(world, host).unexpected}


def built(world: World, flavor: Any = SHARED, **instance: Any) -> str:
    operation = world.build(flavor, **instance)
    world.run_out()
    assert world.ended(operation) is OperationState.SUCCEEDED
    return world.instance(operation).id


def test_an_emptied_database_destroys_nothing_and_says_what_it_found() -> None:
    world = World(hosts=1)
    ids = {built(world), built(world, PINNED)}
    restore(world, {})
    restart_all(world)
    assert set(world.guests()) == ids
    assert registration(world, "host-0").unexpected_count == 2
    assert reasons(world, "host-0") == dict.fromkeys(ids, "no instance of this id has a record")


def test_a_database_restored_from_an_older_copy_destroys_nothing_that_is_newer() -> None:
    world = World(hosts=2)
    first = built(world, host="host-0")
    copy = copied(world.store)
    second = built(world, host="host-0")
    moved = world.submit("live_migrate_instance", {"instance_id": first, "host": "host-1"})
    world.run_out()
    assert world.ended(moved) is OperationState.SUCCEEDED
    before = world.guests()
    restore(world, copy)
    restart_all(world)
    assert world.guests() == before == {first: "host-1", second: "host-0"}
    assert "newer than its record" in reasons(world, "host-1")[first]
    assert second in reasons(world, "host-0")


def test_an_older_copy_that_knows_of_a_removal_does_not_repeat_it_on_a_guest_made_since() -> None:
    world = World(hosts=2)
    vm = built(world, host="host-0")
    for target in ("host-1", "host-0"):
        copy = copied(world.store)
        world.submit("live_migrate_instance", {"instance_id": vm, "host": target})
        world.run_out()
    # The copy says: it has left host-0 for host-1. Since then it has come back.
    restore(world, copy)
    restart_all(world)
    assert world.guests() == {vm: "host-0"}
    assert "newer than its record" in reasons(world, "host-0")[vm]


def test_a_recorded_removal_does_not_reach_a_guest_of_whose_age_its_host_knows_nothing() -> None:
    world = World(hosts=2)
    vm = built(world, host="host-0")
    for target in ("host-1", "host-0"):
        copy = copied(world.store)
        world.submit("live_migrate_instance", {"instance_id": vm, "host": target})
        world.run_out()
    restore(world, copy)
    world.hosts["host-0"].journal = MemoryJournal()  # lost whole at the same time
    world.now += 600.0
    restart_all(world)
    assert world.guests() == {vm: "host-0"}
    assert "its host does not know what it has obeyed" in reasons(world, "host-0")[vm]


@pytest.mark.parametrize(
    "name", ["vm-of-a-colleague", "x" * 300, "nul \0 and \ud800", "", ID.upper()]
)
def test_a_guest_that_is_foreign_is_reported_and_hinders_nobody(name: str) -> None:
    world = World(hosts=1)
    vm = built(world)
    put_guest(world, "host-0", name)
    restart_all(world)
    assert set(world.guests()) == {vm, name}
    [(shown, reason)] = reasons(world, "host-0").items()
    assert reason == "foreign: its name is no instance's id"
    assert len(shown) <= 101
    assert shown.isprintable()
    with world.store.read() as uow:
        assert uow.dead_letters.count() == 0
    built(world)


def test_a_foreign_guest_named_like_an_id_is_left_alone_even_when_that_id_is_deleted() -> None:
    world = World(hosts=1)
    put_guest(world, "host-0", ID)
    restart_all(world)
    assert reasons(world, "host-0") == {ID: "no instance of this id has a record"}
    deleted = world.submit("delete_instance", {"instance_id": ID})
    world.run_out()
    assert world.ended(deleted) is OperationState.SUCCEEDED
    restart_all(world)
    assert set(world.guests()) == {ID}
    assert "deleted" in reasons(world, "host-0")[ID]


def test_a_guest_that_came_under_another_hosts_name_is_left_alone() -> None:
    world = World(hosts=2)
    vm = built(world, host="host-0")
    there = world.hosts["host-0"].hypervisor._domains.pop(InstanceId(vm))
    world.hosts["host-1"].hypervisor._domains[InstanceId(vm)] = there
    restart_all(world)
    assert world.guests() == {vm: "host-1"}
    assert "its instance is on host-0" in reasons(world, "host-1")[vm]


def test_a_guest_whose_instance_was_forgotten_after_its_time_is_left_alone() -> None:
    world = World(hosts=1)
    vm = built(world)
    there = world.hosts["host-0"].hypervisor._domains[InstanceId(vm)]
    world.submit("delete_instance", {"instance_id": vm})
    world.run_out()
    world.now += 31 * 86_400.0
    world.service.retire()
    world.hosts["host-0"].hypervisor._domains[InstanceId(vm)] = there
    restart_all(world)
    assert set(world.guests()) == {vm}
    assert reasons(world, "host-0") == {vm: "no instance of this id has a record"}
    with world.store.read() as uow:
        assert uow.removals.count() == 0


def test_a_host_that_returns_drops_what_was_evacuated_and_what_was_deleted_meanwhile() -> None:
    world = World(hosts=2)
    evacuated, deleted = built(world, host="host-0"), built(world, host="host-0")
    world.kill_host("host-0")
    world.now += 60.0
    world.pass_time(20.0)
    world.submit("evacuate_instance", {"instance_id": evacuated, "host": "host-1"})
    world.submit("delete_instance", {"instance_id": deleted})
    world.run_out()
    world.bus.drop("compute_host-0")  # nor does anything wait for it: only the record says so
    assert set(world.guests()) == {evacuated, deleted}
    world.restart_host("host-0")
    world.run_out()
    restart_all(world)
    assert world.guests() == {evacuated: "host-1"}
    assert reasons(world, "host-0") == {}
    check_at_rest(world)


def test_a_running_guest_that_cannot_be_read_is_not_recorded_as_stopped() -> None:
    world = World(hosts=1)
    vm = built(world)
    put_guest(world, "host-0", vm, spec=None, power="nostate", fault="damaged")
    world.now += 60.0
    restart_all(world)
    assert world.instance_by_id(vm).state is InstanceState.ACTIVE
    assert (world.host("host-0").degraded or "").startswith("accounting degraded")


def test_the_list_of_unexpected_guests_ends_but_its_count_does_not() -> None:
    world = World(hosts=1)
    for number in range(150):
        put_guest(world, "host-0", f"theirs-{number}")
    restart_all(world)
    found = registration(world, "host-0")
    assert (len(found.unexpected), found.unexpected_count) == (100, 150)
    for number in range(150):
        del world.hosts["host-0"].hypervisor._domains[InstanceId(f"theirs-{number}")]
    restart_all(world)
    assert registration(world, "host-0").troubled is False


def test_only_a_removal_of_this_guest_newer_than_all_it_has_obeyed_makes_it_a_leftover() -> None:
    gone = an_instance(ID, host="b", fence=9)
    domain = Domain(instance_id=ID, fence=4, power_state="running")
    was = Removal("r", ID, "a", "op", 5, 0.0)
    assert is_leftover(domain, gone, "a", was)
    assert not is_leftover(domain, None, "a", was)
    assert not is_leftover(domain, gone, "a", None)
    assert not is_leftover(domain, gone, "c", was)
    assert not is_leftover(domain, replace(gone, host="a"), "a", was)
    assert not is_leftover(domain, replace(gone, fence=4), "a", was)
    assert not is_leftover(domain.model_copy(update={"fence": 5}), gone, "a", was)
    assert not is_leftover(domain.model_copy(update={"fence": 0}), gone, "a", was)
    assert why_unexpected(domain, replace(gone, host="a"), "a") is None


@pytest.mark.parametrize("task", ["delete_instance", "stop_instance"])
def test_an_older_copy_of_the_database_is_not_obeyed_and_calls_a_person(task: str) -> None:
    world = World()
    operation = world.build(SHARED)
    world.settle()
    instance = world.instance(operation)
    older = instance.fence
    for power in ("stop_instance", "start_instance"):
        world.submit(power, {"instance_id": instance.id})
        world.settle()
    with world.store.begin() as uow:
        newest = uow.instances.get(instance.id)
        assert newest is not None
        uow.instances.save(replace(newest, fence=older))
    before = world.guests()
    asked = world.submit(task, {"instance_id": instance.id})
    world.settle()
    world.pass_time(3_000.0)
    world.settle()
    record = world.operation(asked)
    assert (record.state, (record.error or {})["code"]) == ("STUCK", "database_outdated")
    assert world.guests() == before
