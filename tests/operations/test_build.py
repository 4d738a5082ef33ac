"""What a build does, and what it leaves when hosts refuse, die or never answer."""

from __future__ import annotations

from collections.abc import Callable

from models.lifecycle import InstanceState, OperationState
from tests.operations.audit import check_at_rest
from tests.operations.world import PINNED, SHARED, World
from workers.hypervisor.fault_injection import Call, Ending, InjectedFault, InjectedFaults

WHOLE_HOST = {"vcpus": 4, "memory_mb": 1024, "extra_specs": {"hw:cpu_policy": "dedicated"}}


def spawning(ending: Ending, *hosts: str) -> Callable[[str], InjectedFaults]:
    """Return faults under which these hosts end every spawn so; all else is done."""

    def faults_of(host: str) -> InjectedFaults:
        def injected_fault(call: Call) -> InjectedFault:
            return InjectedFault(
                ending=ending if call.verb == "spawn" and host in hosts else "done"
            )

        return injected_fault

    return faults_of


def test_a_build_ends_active_on_exactly_the_claimed_cpus() -> None:
    world = World()
    operation = world.build(PINNED)
    world.run_out()
    instance = world.instance(operation)
    assert world.ended(operation) is OperationState.SUCCEEDED
    assert instance.state is InstanceState.ACTIVE
    assert world.host(instance.host or "").used["PCPU"] == 2
    check_at_rest(world)


def test_a_host_that_refuses_is_left_for_an_alternate() -> None:
    world = World(injected_faults=spawning("refused", "host-0"))
    operation = world.build(WHOLE_HOST, host=None)
    world.run_out()
    assert world.ended(operation) is OperationState.SUCCEEDED
    assert world.instance(operation).host != "host-0"
    assert world.host("host-0").used.get("PCPU", 0) == 0
    check_at_rest(world)


def test_when_every_host_refuses_the_fault_names_each_attempt_and_its_reason() -> None:
    world = World(hosts=2, injected_faults=spawning("refused", "host-0", "host-1"))
    operation = world.build(PINNED)
    world.run_out()
    instance = world.instance(operation)
    assert world.ended(operation) is OperationState.FAILED
    assert instance.state is InstanceState.ERROR
    assert instance.fault is not None
    assert instance.fault["code"] == "max_retries_exceeded"
    assert "host-0: " in instance.fault["message"]
    assert "host-1: " in instance.fault["message"]
    assert {a["host"] for a in instance.fault["data"]["attempts"]} == {"host-0", "host-1"}
    assert all(not world.host(name).used.get("PCPU") for name in world.hosts)
    check_at_rest(world)


def test_no_more_than_three_hosts_are_tried() -> None:
    names = tuple(f"host-{n}" for n in range(6))
    world = World(hosts=6, injected_faults=spawning("refused", *names))
    operation = world.build(PINNED)
    world.run_out()
    fault = world.instance(operation).fault
    assert fault is not None
    assert len(fault["data"]["attempts"]) == 3
    check_at_rest(world)


def test_a_build_forced_to_a_host_never_goes_elsewhere() -> None:
    world = World(injected_faults=spawning("refused", "host-1"))
    operation = world.build(PINNED, host="host-1")
    world.run_out()
    assert world.ended(operation) is OperationState.FAILED
    assert world.guests() == {}
    check_at_rest(world)


def test_a_host_that_dies_with_the_instruction_is_left_for_another() -> None:
    world = World()
    operation = world.build(PINNED)
    while not any(queue.startswith("compute_") for queue in world.waiting_queues()):
        world.deliver(world.waiting_queues()[0])
    chosen = world.instance(operation).host or ""
    world.kill_host(chosen)
    world.run_out()
    assert world.ended(operation) is OperationState.SUCCEEDED
    assert world.instance(operation).host != chosen
    assert not world.host(chosen).used.get("PCPU")


def test_a_dead_host_that_comes_back_drops_what_went_elsewhere() -> None:
    world = World()
    operation = world.build(PINNED)
    world.settle()
    chosen = world.instance(operation).host or ""
    other = world.build(PINNED, host=chosen)
    while not any(queue.startswith("compute_") for queue in world.waiting_queues()):
        world.deliver(world.waiting_queues()[0])
    world.kill_host(chosen)
    world.run_out()
    assert world.ended(other) is OperationState.FAILED
    world.restart_host(chosen)
    world.run_out()
    assert world.guests() == {world.instance(operation).id: chosen}
    check_at_rest(world)


def test_a_count_is_built_whole_or_not_at_all() -> None:
    world = World(hosts=2)
    fits = world.build(WHOLE_HOST, count=2)
    world.run_out()
    assert world.ended(fits) is OperationState.SUCCEEDED
    too_many = World(hosts=2)
    operation = too_many.build(WHOLE_HOST, count=3)
    too_many.run_out()
    assert too_many.ended(operation) is OperationState.FAILED
    states = {too_many.instance(operation, n).state for n in range(3)}
    assert states == {InstanceState.ERROR}
    assert too_many.guests() == {}
    check_at_rest(too_many)


def test_no_valid_host_is_one_line_that_counts_hosts() -> None:
    world = World()
    operation = world.build({**PINNED, "vcpus": 64})
    world.run_out()
    fault = world.instance(operation).fault
    assert fault is not None
    assert fault["code"] == "no_valid_host"
    assert fault["message"].startswith("3 hosts: ")
    assert "\n" not in fault["message"]
    check_at_rest(world)


def test_names_of_several_instances_are_numbered() -> None:
    world = World()
    operation = world.build(SHARED, count=2)
    world.run_out()
    assert [world.instance(operation, n).name for n in range(2)] == ["vm-1", "vm-2"]


def test_the_same_request_twice_is_one_operation() -> None:
    world = World()
    operation = world.build(SHARED)
    again = world.submit(
        "build_instances",
        {"instance": {"name": "vm", "flavor": SHARED, "image": {"id": "img"}}, "count": 1},
        operation,
    )
    world.run_out()
    assert again == operation
    assert len(world.guests()) == 1
    with world.store.read() as uow:
        assert uow.dead_letters.count() == 0


def test_the_same_id_with_another_body_is_a_dead_letter_and_changes_nothing() -> None:
    world = World()
    operation = world.build(SHARED)
    body = {"name": "other", "flavor": SHARED, "image": {"id": "img"}}
    world.submit("build_instances", {"instance": body}, operation)
    world.run_out()
    assert world.instance(operation).name == "vm"
    with world.store.read() as uow:
        [outgoing] = uow.dead_letters.where()
    assert outgoing.reason.startswith("duplicate_id: ")


def test_a_refused_request_is_an_operation_that_failed_with_the_field_in_its_error() -> None:
    world = World()
    operation = world.build({"vcpus": 0, "memory_mb": 1})
    world.run_out()
    record = world.operation(operation)
    assert record.state is OperationState.FAILED
    assert record.error is not None
    assert record.error["key"] == "instance.flavor.vcpus"


def test_a_request_without_a_uuid_is_kept_as_a_dead_letter() -> None:
    world = World()
    world.submit("build_instances", {}, "not-a-uuid")
    world.run_out()
    with world.store.read() as uow:
        [outgoing] = uow.dead_letters.where()
    assert outgoing.reason.startswith("id_invalid: ")
