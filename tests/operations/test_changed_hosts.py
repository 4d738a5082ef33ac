"""A host that returns changed: degraded with other hardware, over-committed with less left."""

from __future__ import annotations

from conductor.placement.audit import audit, read_books
from conductor.placement.providers import over_committed, root_of
from models.lifecycle import OperationState
from models.messages.hardware import host_from_json
from tests.operations.audit import check_at_rest
from tests.operations.world import PINNED, SHARED, World, small_host
from workers.hypervisor.port import Hardware


def return_with(world: World, cpus: int) -> None:
    """Let host-0 come back with so many shared and dedicated CPUs, and be listened to."""
    world.kill_host("host-0")
    hardware = Hardware(host_from_json(small_host(cpus=cpus)), 100)
    world.hosts["host-0"].hypervisor._hardware = hardware
    world.restart_host("host-0")
    world.run_out()
    world.pass_time(100.0)


def test_a_host_stays_degraded_while_it_is_changed_whatever_its_accounting_says() -> None:
    world = World(hosts=1)
    pinned, shared = world.build(PINNED), world.build(SHARED)
    world.run_out()
    return_with(world, cpus=1)  # the dedicated CPUs of the first guest are gone
    assert (world.host("host-0").degraded or "").startswith("hardware changed")
    world.submit("delete_instance", {"instance_id": world.instance(pinned).id})
    world.run_out()
    world.pass_time(100.0)
    assert (world.host("host-0").degraded or "").startswith("hardware changed")
    refused = world.build(SHARED)
    world.run_out()
    assert world.ended(refused) is OperationState.FAILED
    return_with(world, cpus=4)
    assert world.host("host-0").degraded is None
    assert world.instance(shared).host == "host-0"
    check_at_rest(world)


def test_a_host_that_keeps_more_for_itself_than_is_left_takes_no_more() -> None:
    world = World(hosts=1)
    world.build(SHARED)
    world.run_out()
    world.kill_host("host-0")
    world.restart_host("host-0", reserved_memory_mib=3_900)
    world.run_out()
    host = world.host("host-0")
    assert host.degraded is None
    assert over_committed(root_of(host)) == {"MEMORY_MB": 512 - 196}
    refused = world.build(SHARED)
    world.run_out()
    assert world.ended(refused) is OperationState.FAILED
    with world.store.read() as uow:
        codes = [each.code for each in audit(read_books(uow))]
    assert codes == ["over_committed"]
    world.kill_host("host-0")
    world.restart_host("host-0")
    world.run_out()
    welcome = world.build(SHARED)
    world.run_out()
    assert world.ended(welcome) is OperationState.SUCCEEDED
    check_at_rest(world)


def test_ratios_that_an_operator_changes_hold_for_hosts_that_are_in_use() -> None:
    world = World(hosts=1)
    world.build(SHARED, count=4)
    world.run_out()
    world.settings = world.settings.model_copy(update={"cpu_allocation_ratio": 2.0})
    world.restart_conductor()
    world.restart_host("host-0")
    world.run_out()
    host = world.host("host-0")
    assert host.degraded is None
    assert host.inventory["VCPU"].ratio == 2.0
