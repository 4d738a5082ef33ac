"""What an agent reports of itself: registration, heartbeats, inventory reports, usage."""

import pytest

from models.errors import Rejected
from models.hardware import HostTopology
from models.messages.base import parse
from models.messages.internal import (
    HEARTBEAT,
    INVENTORY_REPORT,
    REGISTRATION,
    HostRegistration,
    InventoryReport,
)
from tests.workers.world import HOST, OTHER_VM, VM, World, instruction, placement, spec
from workers.agent import Agent
from workers.hypervisor.fault_injection import Call, InjectedFault
from workers.hypervisor.ports import Hardware
from workers.settings import WorkerSettings


def test_a_registration_has_the_hardware_without_use_the_reservation_and_the_guests() -> None:
    world = World(
        settings=WorkerSettings(reserved_memory_mib=512, reserved_disk_gb=3, reserved_vcpus=1)
    )
    agent = world.agent()
    agent.receive(instruction("spawn", fence=3, args=spec(placement({0: 1})).to_json()))
    agent.kill()
    successor = world.agent()
    host_registration = parse(HostRegistration, world.mailbox.bodies(REGISTRATION)[-1])
    assert (host_registration.host, host_registration.boot_id, host_registration.hypervisor) == (
        HOST,
        successor.boot_id,
        "simulated",
    )
    assert [cell["pinned_cpus"] for cell in host_registration.hardware["cells"]] == [[], []]
    assert [cell["memory"] for cell in host_registration.hardware["cells"]] == [4096, 4096]
    assert host_registration.disk_gb == 100
    assert (
        host_registration.reserved.memory_mib,
        host_registration.reserved.disk_gb,
        host_registration.reserved.vcpus,
    ) == (512, 3, 1)
    (domain,) = host_registration.domains
    assert (domain.instance_id, domain.fence, domain.power_state) == (VM, 3, "running")
    assert domain.placement == placement({0: 1})
    assert host_registration.accounting_degraded == ()


def test_each_life_of_an_agent_has_its_own_boot_id() -> None:
    world = World()
    assert world.agent().boot_id != world.agent().boot_id


def test_a_registration_waits_for_the_broker() -> None:
    world = World()
    world.mailbox.down = True
    agent = world.agent()
    agent.heartbeat()
    assert world.mailbox.messages == []
    world.mailbox.down = False
    agent.heartbeat()
    assert [message.task for message in world.mailbox.messages] == [
        REGISTRATION,
        HEARTBEAT,
    ]


def test_a_host_without_cpus_or_memory_is_not_announced() -> None:
    world = World(hardware=Hardware(HostTopology()))
    with pytest.raises(Rejected) as refused:
        world.agent()
    assert refused.value.code == "hardware_incomplete"
    assert world.mailbox.messages == []


def test_a_heartbeat_leaves_each_time_and_an_inventory_report_when_due() -> None:
    world = World(settings=WorkerSettings(manifest_s=60))
    agent = world.agent()
    for _ in range(25):
        world.clock.now += 5
        agent.heartbeat()
    assert len(world.mailbox.bodies(HEARTBEAT)) == 25
    assert len(world.mailbox.bodies(INVENTORY_REPORT)) == 2


def test_an_inventory_report_lists_powered_off_guests_and_foreign_guests() -> None:
    world = World()
    agent = world.agent()
    world.hypervisor.spawn(OTHER_VM, spec())
    agent.receive(instruction("spawn", fence=1))
    agent.receive(instruction("power_off", fence=2))
    world.clock.now += 60
    agent.heartbeat()
    inventory_report = parse(InventoryReport, world.mailbox.bodies(INVENTORY_REPORT)[-1])
    found = {
        domain.instance_id: (domain.fence, domain.power_state)
        for domain in inventory_report.domains
    }
    assert found == {VM: (2, "shutdown"), OTHER_VM: (0, "running")}


def test_an_inventory_report_gives_the_fence_of_what_is_done_not_of_what_is_under_way() -> None:
    seen: list[int] = []
    world = World(settings=WorkerSettings(retry_wait_s=0, manifest_s=0))

    def spy(call: Call) -> InjectedFault:
        if call.verb == "destroy":
            agent.heartbeat()
            inventory_report = parse(InventoryReport, world.mailbox.bodies(INVENTORY_REPORT)[-1])
            seen.extend(domain.fence for domain in inventory_report.domains)
        return InjectedFault()

    world.injected_faults = spy
    world.__post_init__()
    agent = world.agent()
    agent.receive(instruction("spawn", fence=1))
    agent.receive(instruction("destroy", fence=2))
    assert seen == [1]


def test_a_guest_whose_accounting_is_wrong_is_named_and_the_others_go_on() -> None:
    world = World()
    world.hypervisor.spawn(VM, spec(placement({0: 1})))
    world.hypervisor.spawn(OTHER_VM, spec(placement({0: 1})))
    agent = world.agent()
    host_registration = parse(HostRegistration, world.mailbox.bodies(REGISTRATION)[-1])
    assert host_registration.accounting_degraded == (OTHER_VM,)
    assert len(host_registration.domains) == 2
    agent.receive(instruction("spawn", instance_id="third", args=spec(placement({0: 2})).to_json()))
    assert world.mailbox.outcomes() == ["done"]


def test_usage_is_told_as_numbers_that_are_never_negative() -> None:
    world = World(settings=WorkerSettings(reserved_memory_mib=8000))
    agent = world.agent()
    agent.receive(instruction("spawn"))
    memory = agent.usage()["MEMORY_MB"]
    assert (memory.capacity, memory.reserved, memory.used) == (8192, 8000, 512)
    assert memory.overcommit == 320


def let_inventory_be_due(world: World, agent: Agent) -> None:
    world.clock.now += 60
    agent.heartbeat()


def registered(world: World) -> list[HostRegistration]:
    return [parse(HostRegistration, body) for body in world.mailbox.bodies(REGISTRATION)]


def test_hardware_that_changes_is_registered_at_the_next_inventory_report() -> None:
    world = World()
    agent = world.agent()
    agent.receive(instruction("spawn", args=spec(placement({0: 1})).to_json()))
    let_inventory_be_due(world, agent)
    assert len(registered(world)) == 1
    more = Hardware(world.hypervisor.hardware().topology, 200, ("CUSTOM_NEW",))
    world.hypervisor._hardware = more
    let_inventory_be_due(world, agent)
    let_inventory_be_due(world, agent)
    _, changed = registered(world)
    assert (changed.disk_gb, changed.traits) == (200, ("CUSTOM_NEW",))
    assert changed.boot_id == agent.boot_id
    assert [domain.instance_id for domain in changed.domains] == [VM]
    assert agent.usage()["DISK_GB"].capacity == 200


def test_hardware_that_cannot_be_offered_is_not_registered_and_guests_are_listed() -> None:
    world = World()
    agent = world.agent()
    world.hypervisor._hardware = Hardware(HostTopology(), 200)
    before = len(world.mailbox.bodies(INVENTORY_REPORT))
    let_inventory_be_due(world, agent)
    assert len(registered(world)) == 1
    assert len(world.mailbox.bodies(INVENTORY_REPORT)) == before + 1
