"""Who may speak for a host, and in which order what it says counts: counters, never clocks."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from conductor.hosts import host_administration
from conductor.hosts.admission import Admitted, Again, Refused, judge, namesake
from conductor.liveness import host_is_up
from conductor.store import Registration
from models.errors import HostRefused
from models.ids import HostName
from models.lifecycle import InstanceState, OperationState
from models.messages.base import parse
from models.messages.hardware.hardware_json import host_from_json
from models.messages.internal import (
    HEARTBEAT,
    INVENTORY_REPORT,
    REGISTRATION,
    REPORTS,
    HostRegistration,
    OutgoingMessage,
)
from tests.contracts.store.records import a_registration
from tests.messages.message_examples import INTERNAL_EXAMPLES
from tests.operations.copies import restore
from tests.operations.world import SHARED, SimulatedHost, World, small_host
from workers.agent import Agent
from workers.hypervisor.ports import Hardware
from workers.hypervisor.simulated import SimulatedHypervisor
from workers.settings import WorkerSettings

KNOWN = a_registration(
    "rack1-07", worker_id="w3", machine_id="m9", machine_boot="k1", boot_id="b6", boot=3
)


def host_registration(**changes: Any) -> HostRegistration:
    return parse(HostRegistration, {**INTERNAL_EXAMPLES[REGISTRATION], "replaces": None, **changes})


def other_worker(world: World, name: str, refused: list[HostRefused]) -> Agent:
    """A worker elsewhere, with a machine and a journal of its own, under this name."""
    hardware = Hardware(host_from_json(small_host()), 100)
    return worker_on(world, name, SimulatedHost(SimulatedHypervisor(hardware)), refused)


def worker_on(world: World, name: str, host: SimulatedHost, refused: list[HostRefused]) -> Agent:
    return Agent(
        HostName(name),
        host.hypervisor,
        host.journal,
        world.bus.send,
        WorkerSettings(retry_wait_s=0.0),
        clock=lambda: world.now,
        on_refused=refused.append,
    )


def is_up(world: World, host: str) -> bool:
    with world.store.read() as uow:
        return host_is_up(uow, host, 30.0)


def registration(world: World, host: str) -> Registration:
    with world.store.read() as uow:
        found = uow.registrations.get(host)
    assert found is not None
    return found


def hand_answers(world: World, host: str, agent: Agent) -> None:
    """Let a worker read the queue of a host, as one does that came first to it."""
    before, world.hosts[host].agent = world.hosts[host].agent, agent
    world.settle()
    world.hosts[host].agent = before


def test_a_later_start_on_its_state_directory_serves_at_once() -> None:
    assert judge(host_registration(), None, alive=False) == Admitted()
    assert judge(host_registration(), KNOWN, alive=True) == Admitted()


@pytest.mark.parametrize(
    "other",
    [
        {"worker_id": "w4"},
        {"machine_id": "m8"},
        {"machine_boot": "k2"},
        {"boot": 3},
        {"boot": 2},
    ],
)
def test_any_other_worker_waits_until_the_first_is_silent_and_says_whom_it_replaces(
    other: dict[str, Any],
) -> None:
    for replaces in (None, "b1", "b6"):
        assert isinstance(
            judge(host_registration(**other, replaces=replaces), KNOWN, alive=True), Refused
        )
    for replaces in (None, "b1"):
        assert judge(host_registration(**other, replaces=replaces), KNOWN, alive=False) == Again(
            "b6"
        )
    assert judge(host_registration(**other, replaces="b6"), KNOWN, alive=False) == Admitted()


def test_names_that_share_a_queue_are_namesakes() -> None:
    assert namesake("NODE-4", ["node-3", "node-4"]) == "node-4"
    assert namesake("node-4", ["node-4", "node_4"]) is None


def test_a_second_worker_under_a_hosts_name_is_refused_and_named_and_changes_nothing() -> None:
    world = World(hosts=1)
    build = world.build(SHARED, count=2)
    world.run_out()
    refused: list[HostRefused] = []
    other = other_worker(world, "host-0", refused)
    other.start()
    world.settle()
    for _ in range(4):
        world.pass_time(20.0)
        other.heartbeat()
        world.settle()
        assert world.instance(build).state is InstanceState.ACTIVE
    assert "another worker" in (registration(world, "host-0").refused or {})["reason"]
    other.heartbeat()
    hand_answers(world, "host-0", other)
    assert refused[0].code == "worker_refused"
    assert "is alive: one worker serves one host" in refused[0].message
    assert len(world.guests()) == 2
    with world.store.begin() as uow:
        host_administration.set_enabled(uow, "host-0", enabled=True, reason=None)
    assert registration(world, "host-0").troubled is False


def test_a_machine_that_takes_the_place_of_a_dead_one_serves_its_host() -> None:
    world = World(hosts=1)
    world.kill_host("host-0")
    world.service.tick()
    refused: list[HostRefused] = []
    agent = other_worker(world, "host-0", refused)
    agent.start()
    world.hosts["host-0"].agent = agent
    world.settle()
    assert refused
    for _ in range(4):
        world.pass_time(20.0)
        world.settle()
    assert registration(world, "host-0").boot_id == agent.boot_id
    world.run_out()
    operation = world.build(SHARED)
    world.run_out()
    assert world.ended(operation) is OperationState.SUCCEEDED


def test_a_host_removed_under_its_living_worker_comes_back_with_the_next_heartbeat() -> None:
    world = World(hosts=2)
    with world.store.begin() as uow:
        host_administration.remove(uow, "host-0")
    world.beat()
    world.settle()
    assert is_up(world, "host-0")


def test_living_workers_register_with_an_emptied_database_by_themselves() -> None:
    world = World(hosts=2)
    build = world.build(SHARED)
    world.run_out()
    guest = world.instance(build).id
    restore(world, {})
    world.beat()
    world.settle()
    assert is_up(world, "host-0")
    assert is_up(world, "host-1")
    assert set(world.guests()) == {guest}


@pytest.mark.parametrize("clock_s", [-86_400.0, 86_400.0])
def test_a_clock_a_day_off_changes_nothing(clock_s: float) -> None:
    world = World(hosts=2)
    build = world.build(SHARED, host="host-0")
    world.run_out()
    vm = world.instance(build).id
    host = world.hosts["host-0"]
    world.kill_host("host-0")
    host.agent = Agent(
        HostName("host-0"),
        host.hypervisor,
        host.journal,
        world.bus.send,
        WorkerSettings(retry_wait_s=0.0, manifest_s=0.0),
        clock=lambda: world.now + clock_s,
    )
    host.agent.start()
    world.settle()
    del host.hypervisor._domains[next(iter(host.hypervisor._domains))]
    world.restart_host("host-0")
    for _ in range(3):
        world.pass_time(61.0)
        world.settle()
    assert world.instance_by_id(vm).state is InstanceState.ERROR


def reports_of(world: World) -> list[OutgoingMessage]:
    """Take what waits for the conductor off its queue."""
    waiting = []
    while outgoing := world.bus.take(REPORTS):
        waiting.append(outgoing)
    return waiting


def test_reports_count_once_and_in_their_order_however_they_come() -> None:
    world = World(hosts=1)
    build = world.build(SHARED)
    world.run_out()
    vm = world.instance(build).id
    world.pass_time(61.0)
    reports_of(world)
    world.now += 61.0
    world.beat()
    old = reports_of(world)
    assert {outgoing.task for outgoing in old} == {HEARTBEAT, INVENTORY_REPORT}
    host = world.hosts["host-0"].hypervisor
    domain = host._domains.pop(next(iter(host._domains)))
    world.now += 61.0
    world.beat()
    new = reports_of(world)
    for order in permutations([*old, *new, *old]):
        world.now += 1.0
        for outgoing in order:
            world.hand_over(outgoing)
    assert world.instance_by_id(vm).state is InstanceState.ERROR
    host._domains[domain.instance_id] = domain
    world.now += 61.0
    world.beat()
    world.settle()
    assert world.instance_by_id(vm).state is InstanceState.ACTIVE


def test_what_an_earlier_life_has_said_revives_nobody() -> None:
    world = World(hosts=1)
    world.beat()
    [early] = [outgoing for outgoing in reports_of(world) if outgoing.task == HEARTBEAT]
    world.kill_host("host-0")
    world.restart_host("host-0")
    registrations = reports_of(world)
    for outgoing in registrations:
        world.hand_over(outgoing)
    world.kill_host("host-0")
    for _ in range(20):
        world.pass_time(3.0)
    assert not is_up(world, "host-0")
    for outgoing in (early, *registrations, early):
        world.hand_over(outgoing)
        world.settle()
    assert not is_up(world, "host-0")


def test_restarting_a_worker_does_not_undo_force_down() -> None:
    world = World(hosts=1)
    with world.store.begin() as uow:
        host_administration.force_down(uow, "host-0", "smoke")
    world.kill_host("host-0")
    world.restart_host("host-0")
    world.pass_time(10.0)
    world.settle()
    assert world.host("host-0").forced_down is True
    assert not is_up(world, "host-0")
    with world.store.begin() as uow:
        host_administration.set_enabled(uow, "host-0", enabled=True, reason=None)
    assert is_up(world, "host-0")


def test_a_machine_that_comes_back_under_another_name_is_refused_naming_the_old_one() -> None:
    world = World(hosts=2)
    build = world.build(SHARED, host="host-0")
    world.run_out()
    world.kill_host("host-0")
    refused: list[HostRefused] = []
    renamed = worker_on(world, "host-0.example.com", world.hosts["host-0"], refused)
    renamed.start()
    world.hosts["host-0.example.com"] = replace(world.hosts["host-0"], agent=renamed)
    world.settle()
    assert "its machine is known as host-0" in refused[0].message
    assert "host-0.example.com" in (registration(world, "host-0").refused or {})["reason"]
    with world.store.read() as uow:
        assert sorted(host.name for host in uow.hosts.where()) == ["host-0", "host-1"]
    assert world.instance(build).id in world.guests()


def test_a_name_that_differs_only_by_case_is_refused_and_obeys_nothing_of_the_other() -> None:
    world = World(hosts=1)
    build = world.build(SHARED)
    while not any(queue.startswith("compute_") for queue in world.waiting_queues()):
        world.deliver(world.waiting_queues()[0])
    first = world.hosts["host-0"].agent
    refused: list[HostRefused] = []
    shouting = other_worker(world, "HOST-0", refused)
    shouting.start()
    # It is the first to read the queue that both names share.
    world.hosts["host-0"].agent = shouting
    for _ in range(5):
        if world.waiting_queues():
            world.deliver(world.waiting_queues()[0])
    assert shouting.hypervisor.domains() == ()
    world.settle()
    assert "host-0 is known, and both names have the same queue" in refused[0].message
    world.hosts["host-0"].agent = first
    world.run_out()
    assert world.operation(build).state.ended
    assert world.guests() == {} or set(world.guests().values()) == {"host-0"}
