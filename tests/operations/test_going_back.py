"""An undo acts only where something may have begun, and leaves every field as it was."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable

import pytest

from conductor.hosts import host_administration
from conductor.store import CatalogueEntry
from models.ids import InstanceId, OperationId, child_instance_id
from models.lifecycle import InstanceState, OperationState, PowerState
from models.messages.internal import OutgoingMessage
from tests.operations.test_moves import ask, built, error_code, on_verb
from tests.operations.world import PINNED, SHARED, World
from workers.hypervisor.fault_injection import Call, InjectedFault, InjectedFaults


def calls(world: World, verb: str, instance_id: str, host: str = "host-0") -> int:
    return world.hosts[host].hypervisor.calls(instance_id, verb)


def lose_guest(world: World, instance_id: str) -> None:
    """Let the guest vanish behind everybody's back, and its host report so."""
    world.hosts["host-0"].hypervisor.destroy(InstanceId(instance_id))
    for _ in range(2):
        world.pass_time(100.0)
    world.settle()
    assert world.instance_by_id(instance_id).state is InstanceState.ERROR


def test_a_refused_rebuild_leaves_the_disk_untouched() -> None:
    world = World(hosts=1, injected_faults=on_verb("refused", "rebuild", "host-0"))
    instance_id = built(world, PINNED)
    operation = ask(world, "rebuild_instance", instance_id, image={"id": "img-2"})
    assert world.ended(operation) is OperationState.FAILED
    assert calls(world, "rebuild", instance_id) == 1
    fault = world.instance_by_id(instance_id).fault
    assert fault is not None
    assert "lost" not in fault["message"]


def test_a_rebuild_that_was_lost_on_its_way_is_not_undone_by_another() -> None:
    world = World(hosts=1, injected_faults=on_verb("lost_before", "rebuild", "host-0"))
    instance_id = built(world, PINNED)
    operation = ask(world, "rebuild_instance", instance_id, image={"id": "img-2"})
    assert world.ended(operation) is OperationState.FAILED
    assert world.hosts["host-0"].hypervisor.effects(instance_id, "rebuild") == 0
    assert world.instance_by_id(instance_id).state is InstanceState.ACTIVE


def test_a_rebuild_that_failed_half_way_is_undone_and_its_fault_says_what_may_be_lost() -> None:
    def faults_of(_: str) -> InjectedFaults:
        def injected_fault(call: Call) -> InjectedFault:
            half = call.verb == "rebuild" and call.nth < 3
            return InjectedFault(ending="lost_after" if half else "done")

        return injected_fault

    world = World(hosts=1, injected_faults=faults_of)
    instance_id = built(world, PINNED)
    operation = ask(world, "rebuild_instance", instance_id, image={"id": "img-2"})
    assert world.ended(operation) is OperationState.FAILED
    instance = world.instance_by_id(instance_id)
    [domain] = world.hosts["host-0"].hypervisor.domains()
    assert (domain.spec.image_id if domain.spec else None) == "img"
    assert "may be lost" in str(instance.fault)


def test_a_refusal_after_an_attempt_with_unknown_outcome_is_undone_all_the_same() -> None:
    def faults_of(_: str) -> InjectedFaults:
        def injected_fault(call: Call) -> InjectedFault:
            if call.verb != "spawn":
                return InjectedFault()
            return InjectedFault(ending="lost_after" if call.nth == 0 else "refused")

        return injected_fault

    world = World(hosts=1, injected_faults=faults_of)
    operation = world.build(PINNED)
    world.run_out()
    assert world.ended(operation) is OperationState.FAILED
    assert world.guests() == {}


@pytest.mark.parametrize(
    ("task", "arguments", "verb", "undo"),
    [
        ("stop_instance", {}, "power_off", "power_on"),
        ("shelve_instance", {}, "snapshot", None),
        ("resize_instance", {"flavor": {**PINNED, "vcpus": 1}, "host": "host-0"}, "reshape", None),
        ("live_migrate_instance", {}, "copy", "abort_copy"),
    ],
)
def test_what_a_host_refuses_is_not_undone_there(
    task: str, arguments: dict[str, object], verb: str, undo: str | None
) -> None:
    world = World(hosts=2, injected_faults=on_verb("refused", verb, "host-0"))
    instance_id = built(world, PINNED, host="host-0")
    operation = ask(world, task, instance_id, **arguments)
    assert world.ended(operation) is OperationState.FAILED
    assert calls(world, verb, instance_id) == 1
    assert undo is None or calls(world, undo, instance_id) == 0


def test_a_failed_operation_names_the_step_that_failed() -> None:
    world = World(hosts=2, injected_faults=on_verb("refused", "copy", "host-0"))
    operation = ask(world, "live_migrate_instance", built(world, PINNED, host="host-0"))
    assert world.operation(operation).step == "copy"


def test_a_refused_pivot_is_replayed_from_the_start() -> None:
    refuses = {"destroy"}

    def faults_of(_: str) -> InjectedFaults:
        return lambda call: InjectedFault(ending="refused" if call.verb in refuses else "done")

    world = World(hosts=2, injected_faults=faults_of)
    instance_id = built(world, PINNED, host="host-0")
    ask(world, "migrate_instance", instance_id)
    operation = ask(world, "revert_resize", instance_id)
    assert world.operation(operation).step == "remove_from_target"
    refuses.clear()
    replay = world.submit("replay_operation", {"operation_id": operation})
    world.run_out()
    assert world.ended(replay) is OperationState.SUCCEEDED
    assert world.guests() == {instance_id: "host-0"}


@pytest.mark.parametrize(
    ("before", "state", "power"),
    [("running", InstanceState.ACTIVE, "running"), ("off", InstanceState.STOPPED, "shutdown")],
)
@pytest.mark.parametrize("task", ["rebuild_instance", "evacuate_instance"])
def test_a_guest_that_vanished_comes_back_as_it_was(
    task: str, before: str, state: InstanceState, power: str
) -> None:
    world = World(hosts=2)
    instance_id = built(world, PINNED, host="host-0")
    if before == "off":
        ask(world, "stop_instance", instance_id)
    lose_guest(world, instance_id)
    if task == "evacuate_instance":
        world.kill_host("host-0")
        with world.store.begin() as uow:
            host_administration.force_down(uow, "host-0", "fenced")
        operation = ask(world, task, instance_id)
    else:
        operation = ask(world, task, instance_id, image={"id": "img"})
    assert world.ended(operation) is OperationState.SUCCEEDED
    instance = world.instance_by_id(instance_id)
    assert instance.state is state
    [guest] = [g for h in world.hosts.values() for g in h.hypervisor.domains()]
    assert guest.power == power


def test_a_vanished_guest_whose_rebuild_fails_stays_in_error_and_the_next_one_runs_it() -> None:
    fails = {"rebuild"}

    def faults_of(_: str) -> InjectedFaults:
        return lambda call: InjectedFault(ending="refused" if call.verb in fails else "done")

    world = World(hosts=1, injected_faults=faults_of)
    instance_id = built(world, PINNED)
    lose_guest(world, instance_id)
    ask(world, "rebuild_instance", instance_id, image={"id": "img"})
    assert world.instance_by_id(instance_id).state is InstanceState.ERROR
    fails.clear()
    ask(world, "rebuild_instance", instance_id, image={"id": "img"})
    instance = world.instance_by_id(instance_id)
    assert (instance.state, instance.power_state) == (InstanceState.ACTIVE, PowerState.RUNNING)


def test_a_failed_unshelve_to_another_zone_leaves_the_request_spec_as_it_was() -> None:
    world = World(hosts=2)
    with world.store.begin() as uow:
        for name, host in (("east", "host-0"), ("west", "nowhere")):
            body = {"name": name, "hosts": [host]}
            uow.catalogue.put(CatalogueEntry("zone", name, body, uow.now))
    instance_id = built(world, SHARED)
    ask(world, "shelve_instance", instance_id, offload=True)
    before = world.instance_by_id(instance_id).request_spec
    operation = ask(world, "unshelve_instance", instance_id, availability_zone="west")
    assert world.ended(operation) is OperationState.FAILED
    assert world.instance_by_id(instance_id).request_spec == before
    again = ask(world, "unshelve_instance", instance_id)
    assert world.ended(again) is OperationState.SUCCEEDED


def test_the_source_of_a_move_is_not_counted_as_tried_and_refused() -> None:
    world = World(hosts=1)
    operation = ask(world, "migrate_instance", built(world, PINNED))
    assert error_code(world, operation) == "no_valid_host"
    told = json.dumps(world.operation(operation).error)
    assert "tried and refused" not in told
    assert "where it is already" in told


@pytest.mark.parametrize("count", [1, 2])
def test_a_delete_before_its_build_calls_the_build_back(count: int) -> None:
    world = World(hosts=1)
    operation = str(uuid.uuid4())
    instance_id = child_instance_id(OperationId(operation), 0)
    world.submit("delete_instance", {"instance_id": instance_id})
    world.run_out()
    body = {"name": "vm", "flavor": SHARED, "image": {"id": "img"}}
    world.submit("build_instances", {"instance": body, "count": count}, operation)
    world.run_out()
    assert world.ended(operation) is OperationState.CANCELLED
    assert world.ended(world.child(operation).id) is OperationState.CANCELLED
    assert len(world.guests()) == count - 1


def test_refusals_of_hosts_are_not_reported_as_a_lack_of_hosts() -> None:
    world = World(
        hosts=3, injected_faults=on_verb("refused", "spawn", "host-0", "host-1", "host-2")
    )
    operation = world.build(SHARED, count=3)
    world.run_out()
    error = world.operation(operation).error or {}
    assert (error["kind"], error["code"]) == ("HostRefused", "children_failed")


def test_what_a_host_or_a_step_raises_stays_in_its_log() -> None:
    secret = "rbd:pool/vol:key=AQBsecretkey== at 10.1.2.3"

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(secret)

    world = World(hosts=1)
    world.hosts["host-0"].hypervisor.spawn = broken  # type: ignore[method-assign]  # a broken port
    told: list[object] = []
    send = world.bus.send

    def listen(outgoing_messages: Iterable[OutgoingMessage]) -> None:
        sent = list(outgoing_messages)
        told.extend(sent)
        send(sent)

    world.bus.send = listen  # type: ignore[method-assign]  # hears what is sent
    operation = world.build(SHARED)
    world.run_out()
    error = world.operation(operation).error or {}
    assert "RuntimeError" in json.dumps(error)
    assert secret not in json.dumps(error)
    assert secret not in str(told)
