"""A host that returns with other hardware: degraded until the hardware is as it was, or empty."""

from __future__ import annotations

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
