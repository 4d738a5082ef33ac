"""Every operation, in every way it can be disturbed: generated from what it does undisturbed.

A run without trouble shows which messages an operation sends and which calls it makes of which
host. Each of these is then made to fail, to come twice, to be cut by a death or by a delete;
afterwards everything has ended and capacity is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from conductor.hosts import host_administration
from conductor.operations.operation_registry import OPERATIONS
from models.ids import OperationId, child_instance_id
from models.lifecycle import InstanceState
from tests.operations.audit import check_at_any_time, check_at_rest
from tests.operations.test_unexpected_guests import put_guest
from tests.operations.world import PINNED, Killed, World
from workers.hypervisor.fault_injection import Call, Ending, InjectedFault, InjectedFaults

BIGGER = {"vcpus": 3, "memory_mb": 2048, "extra_specs": {"hw:cpu_policy": "dedicated"}}
MESSAGES = 60
ORPHAN = "9f1c2d3e-0000-4000-8000-000000000009"


def _built(world: World) -> str:
    operation = world.build(PINNED, host="host-0")
    world.run_out()
    return world.instance(operation).id


def _after(world: World, task: str, instance_id: str, **arguments: Any) -> None:
    world.submit(task, {"instance_id": instance_id, **arguments})
    world.run_out()


def _stopped(world: World, instance_id: str) -> None:
    _after(world, "stop_instance", instance_id)


def _paused(world: World, instance_id: str) -> None:
    _after(world, "pause_instance", instance_id)


def _suspended(world: World, instance_id: str) -> None:
    _after(world, "suspend_instance", instance_id)


def _moved(world: World, instance_id: str) -> None:
    _after(world, "resize_instance", instance_id, flavor=BIGGER, host="host-1")


def _offloaded(world: World, instance_id: str) -> None:
    _after(world, "shelve_instance", instance_id, offload=True)


def _shelved(world: World, instance_id: str) -> None:
    _after(world, "shelve_instance", instance_id)


def _stocked(world: World, _: str) -> None:
    for entry, body in (
        ("aggregate", {"name": "rack", "hosts": ["host-0", "host-1"]}),
        ("image", {"id": "img-2"}),
    ):
        world.submit("define_entry", {"entry": entry, "body": body})
    world.run_out()


def _with_orphan(world: World, _: str) -> None:
    put_guest(world, "host-1", ORPHAN)
    for _round in range(2):
        world.pass_time(61.0)
        world.settle()


def _host_dead(world: World, _: str) -> None:
    world.kill_host("host-0")
    with world.store.begin() as uow:
        host_administration.force_down(uow, "host-0", "fenced")


def _shelved_on_dead(world: World, instance_id: str) -> None:
    _shelved(world, instance_id)
    _host_dead(world, instance_id)


@dataclass(frozen=True)
class Scenario:
    """One operation: what comes before it, and what is asked."""

    task: str
    prepare: Callable[[World, str], None] = lambda *_: None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    subject: str | None = "instance_id"

    def begin(
        self, injected_faults: Callable[[str], InjectedFaults] | None = None
    ) -> tuple[World, str]:
        """Return a world in which the operation has been asked for and nothing has moved yet."""
        switch = Switch(injected_faults)
        world = World(hosts=3, injected_faults=switch.faults_of)
        if self.task == "build_instances":
            switch.on = True
            operation = world.build(PINNED)
            return world, world_instance(operation)
        instance_id = _built(world)
        self.prepare(world, instance_id)
        world.delivered.clear()
        switch.on = True
        subject = {self.subject: instance_id} if self.subject else {}
        world.submit(self.task, {**subject, **self.arguments})
        return world, instance_id


class Switch:
    """Faults that hold only from the operation under test on; before it all goes well."""

    def __init__(self, injected_faults: Callable[[str], InjectedFaults] | None) -> None:
        self._faults = injected_faults
        self.on = False

    def faults_of(self, host: str) -> InjectedFaults:
        chosen = self._faults(host) if self._faults else None

        def injected_fault(call: Call) -> InjectedFault:
            return chosen(call) if self.on and chosen else InjectedFault()

        return injected_fault


def world_instance(operation: str) -> str:
    return child_instance_id(OperationId(operation), 0)


SCENARIOS = {
    "build": Scenario("build_instances"),
    "delete": Scenario("delete_instance"),
    "stop": Scenario("stop_instance"),
    "start": Scenario("start_instance", _stopped),
    "pause": Scenario("pause_instance"),
    "unpause": Scenario("unpause_instance", _paused),
    "suspend": Scenario("suspend_instance"),
    "resume": Scenario("resume_instance", _suspended),
    "reboot": Scenario("reboot_instance"),
    "reboot-hard": Scenario("reboot_instance", _paused, {"hard": True}),
    "migrate": Scenario("migrate_instance"),
    "resize": Scenario("resize_instance", arguments={"flavor": BIGGER}),
    "resize-here": Scenario(
        "resize_instance", arguments={"flavor": {**PINNED, "vcpus": 1}, "host": "host-0"}
    ),
    "confirm": Scenario("confirm_resize", _moved),
    "revert": Scenario("revert_resize", _moved),
    "live-migrate": Scenario("live_migrate_instance"),
    "rebuild": Scenario("rebuild_instance", arguments={"image": {"id": "img-2"}}),
    "evacuate": Scenario("evacuate_instance", _host_dead),
    "shelve": Scenario("shelve_instance"),
    "offload": Scenario("shelve_instance", arguments={"offload": True}),
    "offload-shelved": Scenario("shelve_instance", _shelved, {"offload": True}),
    "offload-shelved-from-dead": Scenario("shelve_instance", _shelved_on_dead, {"offload": True}),
    "evacuate-shelved": Scenario("evacuate_instance", _shelved_on_dead),
    "unshelve": Scenario("unshelve_instance", _shelved),
    "unshelve-offloaded": Scenario("unshelve_instance", _offloaded),
    "snapshot": Scenario("snapshot_instance"),
    "snapshot-stopped": Scenario("snapshot_instance", _stopped, {"image_name": "mine"}),
    "console": Scenario("read_console", subject="guest_id"),
    "destroy-orphan": Scenario(
        "destroy_orphan",
        _with_orphan,
        {"host": "host-1", "guest_id": ORPHAN},
        subject=None,
    ),
    "cache": Scenario(
        "cache_images", _stocked, {"aggregate": "rack", "images": ["img-2"]}, subject=None
    ),
}

every_scenario = pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())


def _calls_of(scenario: Scenario) -> list[tuple[str, str]]:
    """Return which verb is called on which host when nothing goes wrong."""
    seen: list[tuple[str, str]] = []

    def faults_of(host: str) -> InjectedFaults:
        def injected_fault(call: Call) -> InjectedFault:
            seen.append((host, call.verb))
            return InjectedFault()

        return injected_fault

    world, _ = scenario.begin(faults_of)
    world.run_out()
    return list(dict.fromkeys(seen))


def _end(world: World) -> None:
    """Let everything end: dead hosts come back, inventory reports are compared, all adds up."""
    world.run_out()
    for name, host in world.hosts.items():
        if host.agent is None:
            world.restart_host(name)
    world.run_out()
    world.pass_time(100.0)
    world.run_out()
    check_at_rest(world)


def test_every_operation_has_a_scenario() -> None:
    covered = {scenario.task for scenario in SCENARIOS.values()}
    parts = {"build_instance", "cache_images_on_host", "define_entry", "remove_entry"}
    assert set(OPERATIONS) == covered | parts


@every_scenario
def test_undisturbed_it_succeeds_and_every_step_leaves_the_sums_right(scenario: Scenario) -> None:
    world, _ = scenario.begin()
    while queues := world.waiting_queues():
        world.deliver(queues[0])
        check_at_any_time(world)
    _end(world)
    with world.store.read() as uow:
        states = {record.kind: record.state for record in uow.operations.where()}
    assert states[scenario.task] == "SUCCEEDED"


@every_scenario
def test_every_message_twice_and_again_at_the_end_changes_nothing(scenario: Scenario) -> None:
    world, instance_id = scenario.begin()
    world.settle(times=2)
    _end(world)
    before = world.instance_by_id(instance_id)
    for outgoing in list(world.delivered):
        world.hand_over(outgoing)
        world.settle()
    _end(world)
    after = world.instance_by_id(instance_id)
    assert (after.state, after.host, after.flavor) == (before.state, before.host, before.flavor)


@every_scenario
@pytest.mark.parametrize("ending", ["refused", "lost_before", "lost_after"])
def test_whatever_call_fails_for_good_it_ends_and_the_sums_are_right(
    scenario: Scenario, ending: Ending
) -> None:
    calls = _calls_of(scenario)
    for host, verb in calls:

        def faults_of(name: str, host: str = host, verb: str = verb) -> InjectedFaults:
            def injected_fault(call: Call) -> InjectedFault:
                return InjectedFault(ending=ending if (name, call.verb) == (host, verb) else "done")

            return injected_fault

        world, _ = scenario.begin(faults_of)
        while queues := world.waiting_queues():
            world.deliver(queues[0])
            check_at_any_time(world)
        world.run_out()
        check_at_any_time(world)


@every_scenario
def test_whatever_call_fails_and_whatever_undo_fails_at_first_nothing_is_left(
    scenario: Scenario,
) -> None:
    for host, verb in _calls_of(scenario):

        def faults_of(name: str, host: str = host, verb: str = verb) -> InjectedFaults:
            def injected_fault(call: Call) -> InjectedFault:
                hit = (name, call.verb) == (host, verb)
                return InjectedFault(ending="lost_before" if hit or call.nth == 0 else "done")

            return injected_fault

        world, _ = scenario.begin(faults_of)
        world.run_out()
        check_at_any_time(world)


@every_scenario
def test_a_delete_after_any_message_ends_with_nothing_left(scenario: Scenario) -> None:
    for outgoing_messages in range(MESSAGES):
        world, instance_id = scenario.begin()
        for _ in range(outgoing_messages):
            if queues := world.waiting_queues():
                world.deliver(queues[0])
        done = not world.waiting_queues()
        world.submit("delete_instance", {"instance_id": instance_id})
        _end(world)
        assert world.instance_by_id(instance_id).state is InstanceState.DELETED
        assert world.guests() == {}
        assert not any(u for name in world.hosts for u in world.host(name).used.values())
        if done:
            return
    raise AssertionError("it has no end")


@every_scenario
def test_a_conductor_that_dies_after_any_commit_changes_nothing_of_the_end(
    scenario: Scenario,
) -> None:
    for dies_after in range(1, 80):
        world, _ = scenario.begin()
        world.store.commits_left = dies_after
        died = False
        try:
            world.run_out()
        except Killed:
            died = True
        world.restart_conductor()
        _end(world)
        with world.store.read() as uow:
            [record] = uow.operations.where(kind=scenario.task, state="SUCCEEDED")[-1:]
        assert record.kind == scenario.task
        if not died:
            return
    raise AssertionError("it has no end")


@every_scenario
def test_a_host_that_dies_after_any_message_and_comes_back_leaves_the_sums_right(
    scenario: Scenario,
) -> None:
    for outgoing_messages in range(MESSAGES):
        world, _ = scenario.begin()
        for _ in range(outgoing_messages):
            if queues := world.waiting_queues():
                world.deliver(queues[0])
        done = not world.waiting_queues()
        for name in ("host-0", "host-1"):
            world.kill_host(name)
            world.bus.drop(f"compute_{name}")
        world.pass_time(100.0)
        world.settle()
        check_at_any_time(world)
        _end(world)
        if done:
            return
    raise AssertionError("it has no end")
