"""A host that refuses or dies is left for an alternate; when none is left, the fault says why."""

from __future__ import annotations

import uuid

from conductor.store.records import Instance
from models.lifecycle import InstanceState, OperationState
from tests.acceptance.fleet import Fleet
from tests.acceptance.sending import PINNED, child_of, instance_of

REFUSES = ("--habit", "spawn.refused=1")


NEARLY_WHOLE = {**PINNED, "vcpus": 14}


def zone_of(fleet: Fleet, first: str, other: str) -> str:
    """Return a zone of two hosts, of which `first` is tried first: the other is nearly full."""
    name = f"zone-{uuid.uuid4()}"
    fleet.define("zone", name=name, hosts=[first, other])
    assert fleet.ended(fleet.sender.build(NEARLY_WHOLE, host=other)).error is None
    return name


def sent_to(fleet: Fleet, build: str, host: str) -> bool:
    seen = fleet.operation(child_of(build))
    return seen is not None and seen.waiting_on == f"compute:{host}"


def check_nothing_held(fleet: Fleet, instance: Instance) -> None:
    with fleet.store.read() as uow:
        assert uow.allocations.where(consumer_id=instance.id) == []
    assert instance.host is None
    assert instance.placement is None
    fleet.settle()
    assert instance.id not in fleet.guests()


def test_a_host_that_refuses_is_left_for_its_alternate(fleet: Fleet) -> None:
    zone = zone_of(fleet, "beta", "alpha")
    fleet.restart("compute-beta", *REFUSES)
    build = fleet.sender.build(availability_zone=zone)
    record = fleet.ended(build)
    assert record.state is OperationState.SUCCEEDED, record.error
    assert fleet.decided(instance_of(build)) == ["beta", "alpha"]
    assert fleet.instance(instance_of(build)).host == "alpha"
    child = fleet.operation(child_of(build))
    assert child is not None
    assert [attempt["host"] for attempt in child.attempts] == ["beta"]


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
    # In which order is the weighers' business: a host that has just refused comes later.
    tried = [attempt["host"] for attempt in instance.fault["data"]["attempts"]]
    assert sorted(tried) == ["beta", "gamma"]
    check_nothing_held(fleet, instance)


def test_an_alternate_that_was_taken_meanwhile_is_part_of_the_fault(fleet: Fleet) -> None:
    """Case N06: one host refuses, and by then somebody else has the other one's CPUs."""
    zone = zone_of(fleet, "beta", "gamma")
    fleet.restart("compute-beta", "--habit", "spawn.latency_s=2", *REFUSES)
    build = fleet.sender.build(availability_zone=zone)
    fleet.until(lambda: sent_to(fleet, build, "beta"), "the spawn to be sent to beta")
    other = fleet.sender.build(host="gamma")
    assert fleet.ended(other).state is OperationState.SUCCEEDED
    record = fleet.ended(build)
    assert record.state is OperationState.FAILED
    instance = fleet.instance(instance_of(build))
    assert instance.state is InstanceState.ERROR
    assert instance.fault is not None
    message = instance.fault["message"]
    assert "beta: the simulated hypervisor refuses" in message
    assert "1 lacks free dedicated CPUs (need 2, best 0 on gamma)" in message
    check_nothing_held(fleet, instance)


def test_a_host_that_dies_with_a_spawn_in_hand_is_left_for_its_alternate(fleet: Fleet) -> None:
    zone = zone_of(fleet, "epsilon", "alpha")
    worker = fleet.members["compute-epsilon"]
    worker.kill()
    build = fleet.sender.build(availability_zone=zone)
    fleet.until(lambda: sent_to(fleet, build, "epsilon"), "the spawn to be sent to it")
    fleet.stops.let_be_silent("epsilon")
    record = fleet.ended(build)
    assert record.state is OperationState.SUCCEEDED, record.error
    instance = fleet.instance(instance_of(build))
    assert instance.host == "alpha"
    assert not fleet.host("epsilon").used
    worker.start()
    fleet.settle()  # it finds both the old spawn and the destroy behind it
    assert fleet.guests()[instance.id] == "alpha"
