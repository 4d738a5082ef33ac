"""Pause, suspend, reboot, and guests that stop by themselves: what is said is what is."""

from __future__ import annotations

import pytest

from conductor.store import OperationRecord
from models.lifecycle import InstanceState, PowerState
from tests.operations.test_moves import ask as asked
from tests.operations.test_moves import built
from tests.operations.world import PINNED, World


def ask(world: World, task: str, instance_id: str, **arguments: object) -> OperationRecord:
    """Ask for something, let it end, and return its record."""
    return world.operation(asked(world, task, instance_id, **arguments))


def powers(world: World, instance_id: str) -> tuple[InstanceState, PowerState, str | None]:
    """What the record says of an instance, and what its host has of it."""
    instance = world.instance_by_id(instance_id)
    host = world.hosts[instance.host or ""].hypervisor
    domain = next((d for d in host.domains() if d.instance_id == instance_id), None)
    return instance.state, instance.power_state, domain.power if domain else None


PAUSED = (InstanceState.PAUSED, PowerState.PAUSED, "paused")
SUSPENDED = (InstanceState.SUSPENDED, PowerState.SUSPENDED, "suspended")
ACTIVE = (InstanceState.ACTIVE, PowerState.RUNNING, "running")
STOPPED = (InstanceState.STOPPED, PowerState.SHUTDOWN, "shutdown")
CRASHED = (InstanceState.STOPPED, PowerState.CRASHED, "crashed")


@pytest.mark.parametrize(
    ("there", "back", "between"),
    [
        ("pause_instance", "unpause_instance", PAUSED),
        ("suspend_instance", "resume_instance", SUSPENDED),
        ("pause_instance", "reboot_instance", PAUSED),
    ],
)
def test_a_guest_that_is_held_goes_on_where_it_was(
    there: str, back: str, between: tuple[InstanceState, PowerState, str]
) -> None:
    world = World()
    instance_id = built(world, PINNED)
    assert ask(world, there, instance_id).state == "SUCCEEDED"
    assert powers(world, instance_id) == between
    assert ask(world, back, instance_id, **({"hard": True} if "reboot" in back else {})).state == (
        "SUCCEEDED"
    )
    assert powers(world, instance_id) == ACTIVE


def test_reports_leave_a_held_guest_as_it_is() -> None:
    world = World()
    instance_id = built(world, PINNED)
    ask(world, "pause_instance", instance_id)
    world.pass_time(100.0)
    world.settle()
    assert powers(world, instance_id) == PAUSED


@pytest.mark.parametrize(
    "task", ["stop_instance", "pause_instance", "suspend_instance", "live_migrate_instance"]
)
def test_what_needs_a_running_guest_is_refused_of_a_paused_one(task: str) -> None:
    world = World()
    instance_id = built(world, PINNED)
    ask(world, "pause_instance", instance_id)
    record = ask(world, task, instance_id)
    assert (record.state, (record.error or {})["code"]) == ("FAILED", "instance_state")
    assert powers(world, instance_id) == PAUSED


def test_a_guest_that_crashes_is_said_to_have_crashed_and_can_be_started() -> None:
    world = World()
    instance_id = built(world, PINNED)
    world.pass_time(100.0)
    instance = world.instance_by_id(instance_id)
    world.hosts[instance.host or ""].hypervisor.crash(instance_id)
    world.pass_time(1.0)  # far from the next report that is due by itself
    world.settle()
    assert powers(world, instance_id) == CRASHED
    assert (world.instance_by_id(instance_id).fault or {})["code"] == "guest_crashed"
    assert ask(world, "start_instance", instance_id).state == "SUCCEEDED"
    assert powers(world, instance_id) == ACTIVE
    assert world.instance_by_id(instance_id).fault is None


def test_a_soft_reboot_of_a_stopped_guest_is_refused_and_a_hard_one_starts_it() -> None:
    world = World()
    instance_id = built(world, PINNED)
    ask(world, "stop_instance", instance_id)
    assert ask(world, "reboot_instance", instance_id).state == "FAILED"
    assert powers(world, instance_id) == STOPPED
    assert ask(world, "reboot_instance", instance_id, hard=True).state == "SUCCEEDED"
    assert powers(world, instance_id) == ACTIVE


def test_a_copy_is_told_what_the_target_said_and_within_which_limits() -> None:
    world = World(hosts=2)
    instance_id = built(world, PINNED)
    policy = {"bandwidth_mib_s": 100, "timeout_s": 60.0, "on_timeout": "pause"}
    record = ask(world, "live_migrate_instance", instance_id, policy=policy)
    assert record.state == "SUCCEEDED"
    copies = [m for m in world.delivered if m.task == "compute.copy"]
    assert copies[-1].body["args"]["policy"] == {
        "auto_converge": True,
        "post_copy": False,
        **policy,
    }
    assert copies[-1].body["args"]["destination"] == {}
