"""A host that refuses or dies is left for an alternate; when none is left, the fault says why."""

from __future__ import annotations

import uuid

from conductor.store import Instance
from models.lifecycle import InstanceState, OperationState
from tests.acceptance.fleet import Fleet
from tests.acceptance.sending import PINNED, child_of, instance_of

SLOWLY = ("--habit", "spawn.latency_s=3")
REFUSES = ("--habit", "spawn.refused=1")


def zone_of(fleet: Fleet, *hosts: str) -> str:
    """Return a zone of these hosts."""
    zone = f"zone-{uuid.uuid4()}"
    fleet.define("zone", name=zone, hosts=list(hosts))
    return zone


def asked_first(fleet: Fleet, build: str, *hosts: str) -> tuple[str, str]:
    """Return which of two hosts was told to spawn, and the other; weighers choose as they like."""

    def look() -> str | None:
        seen = fleet.operation(child_of(build))
        asked = (seen.waiting_on or "").removeprefix("compute:") if seen else ""
        return asked if asked in hosts else None

    first = fleet.until(look, "a spawn to be sent")
    return first, next(host for host in hosts if host != first)


def check_nothing_held(fleet: Fleet, instance: Instance) -> None:
    with fleet.store.read() as uow:
        assert uow.allocations.where(consumer_id=instance.id) == []
    assert instance.host is None
    assert instance.placement is None
    fleet.settle()
    assert instance.id not in fleet.guests()


def test_a_host_that_refuses_is_left_for_its_alternate(fleet: Fleet) -> None:
    zone = zone_of(fleet, "beta", "alpha")
    for host in ("beta", "alpha"):
        fleet.restart(f"compute-{host}", *SLOWLY)
    build = fleet.sender.build(availability_zone=zone)
    first, other = asked_first(fleet, build, "beta", "alpha")
    fleet.restart(f"compute-{first}", *REFUSES)
    record = fleet.ended(build)
    assert record.state is OperationState.SUCCEEDED, record.error
    assert fleet.decided(instance_of(build)) == [first, other]
    assert fleet.instance(instance_of(build)).host == other
    child = fleet.operation(child_of(build))
    assert child is not None
    assert [attempt["host"] for attempt in child.attempts] == [first]


def test_when_every_host_refuses_the_fault_names_each_attempt_and_its_reason(
    fleet: Fleet,
) -> None:
    zone = zone_of(fleet, "beta", "gamma")
    for host in ("beta", "gamma"):
        fleet.restart(f"compute-{host}", *REFUSES)
    build = fleet.sender.build(availability_zone=zone)
    record = fleet.ended(build)
    assert record.state is OperationState.FAILED
    instance = fleet.instance(instance_of(build))
    assert instance.state is InstanceState.ERROR
    assert instance.task_state is None
    assert instance.fault is not None
    assert instance.fault["code"] == "max_retries_exceeded"
    for host in ("beta", "gamma"):
        assert f"{host}: the simulated hypervisor refuses" in instance.fault["message"]
    tried = [attempt["host"] for attempt in instance.fault["data"]["attempts"]]
    assert sorted(tried) == ["beta", "gamma"]
    check_nothing_held(fleet, instance)


def test_an_alternate_that_was_taken_meanwhile_is_part_of_the_fault(fleet: Fleet) -> None:
    """One host refuses, and by then somebody else has the other one's CPUs."""
    zone = zone_of(fleet, "beta", "gamma")
    for host in ("beta", "gamma"):
        fleet.restart(f"compute-{host}", *SLOWLY)
    build = fleet.sender.build(availability_zone=zone)
    first, other = asked_first(fleet, build, "beta", "gamma")
    whole = fleet.sender.build({**PINNED, "vcpus": 16}, host=other)
    asked_first(fleet, whole, other, first)
    fleet.restart(f"compute-{first}", *REFUSES)
    record = fleet.ended(build)
    assert record.state is OperationState.FAILED
    instance = fleet.instance(instance_of(build))
    assert instance.state is InstanceState.ERROR
    assert instance.fault is not None
    message = instance.fault["message"]
    assert f"{first}: the simulated hypervisor refuses" in message
    assert f"1 lacks free dedicated CPUs (need 2, best 0 on {other})" in message
    check_nothing_held(fleet, instance)
    assert fleet.ended(whole).state is OperationState.SUCCEEDED


def test_a_host_that_dies_with_a_spawn_in_hand_is_left_for_its_alternate(fleet: Fleet) -> None:
    zone = zone_of(fleet, "epsilon", "alpha")
    for host in ("epsilon", "alpha"):
        fleet.members[f"compute-{host}"].kill()
    build = fleet.sender.build(availability_zone=zone)
    first, other = asked_first(fleet, build, "epsilon", "alpha")
    fleet.members[f"compute-{other}"].start()
    fleet.stops.let_be_silent(first)
    record = fleet.ended(build)
    assert record.state is OperationState.SUCCEEDED, record.error
    instance = fleet.instance(instance_of(build))
    assert instance.host == other
    assert not any(fleet.host(first).used.values())
    fleet.members[f"compute-{first}"].start()
    fleet.settle()  # it finds both the old spawn and the destroy behind it
    assert fleet.guests()[instance.id] == other


def test_a_host_that_only_seemed_dead_gives_up_what_was_built_elsewhere(fleet: Fleet) -> None:
    zone = zone_of(fleet, "epsilon", "alpha")
    for host in ("epsilon", "alpha"):
        fleet.restart(f"compute-{host}", "--habit", "spawn.latency_s=1")
    build = fleet.sender.build(availability_zone=zone)
    first, other = asked_first(fleet, build, "epsilon", "alpha")
    instance_id = instance_of(build)
    fleet.until(
        lambda: fleet.journaled(first, "accepted", instance_id, "spawn"), "it to be at work"
    )
    fleet.members[f"compute-{first}"].freeze()
    fleet.stops.let_be_silent(first)
    assert fleet.ended(build).state is OperationState.SUCCEEDED
    assert fleet.instance(instance_id).host == other
    fleet.members[f"compute-{first}"].thaw()
    fleet.settle()  # the spawn goes on where it was, and is undone
    assert fleet.guests()[instance_id] == other

    def only_one_is_left() -> bool:
        made, removed = (fleet.effects(instance_id, verb) for verb in ("spawn", "destroy"))
        return made - removed == 1

    # A guest is gone before its removal is written down: what is counted may come a moment later.
    fleet.until(only_one_is_left, "the guest that was made too often to be removed")
