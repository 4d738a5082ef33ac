"""Images come to the hosts of an aggregate, each by an operation of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from models.lifecycle import OperationState
from tests.operations.world import World
from workers.hypervisor.fault_injection import Call, InjectedFault, InjectedFaults, always_done

RACK = ("host-0", "host-1")


def stocked(world: World, hosts: Iterable[str] = RACK) -> World:
    for entry, body in (
        ("aggregate", {"name": "rack", "hosts": list(hosts)}),
        ("image", {"id": "img-1", "name": "Debian"}),
        ("image", {"id": "img-2"}),
    ):
        world.submit("define_entry", {"entry": entry, "body": body})
    world.run_out()
    return world


def cache(world: World, *images: str, aggregate: str = "rack") -> str:
    return world.submit("cache_images", {"aggregate": aggregate, "images": list(images)})


def on_hosts(world: World) -> dict[str, set[str]]:
    return {name: set(host.hypervisor.images()) for name, host in world.hosts.items()}


def error(world: World, operation: str) -> dict[str, Any]:
    return dict(world.operation(operation).error or {})


def refusing(name: str) -> InjectedFaults:
    def injected_fault(call: Call) -> InjectedFault:
        return InjectedFault(ending="refused" if call.verb == "cache_images" else "done")

    return injected_fault if name == "host-1" else always_done


def test_every_host_of_the_aggregate_has_them_and_no_other() -> None:
    world = stocked(World())
    operation = cache(world, "Debian", "img-2", "img-1")
    world.run_out()
    assert world.ended(operation) is OperationState.SUCCEEDED
    have = {"img-1", "img-2"}
    assert on_hosts(world) == {"host-0": have, "host-1": have, "host-2": set()}


def test_an_unknown_aggregate_is_refused_by_name() -> None:
    world = stocked(World())
    operation = cache(world, "img-1", aggregate="shelf")
    world.run_out()
    assert error(world, operation) == {
        "kind": "Rejected",
        "code": "aggregate_unknown",
        "message": "aggregate is shelf: no such aggregate",
        "key": "aggregate",
    }


def test_an_unknown_image_is_refused_before_any_host_is_asked() -> None:
    world = stocked(World())
    operation = cache(world, "img-1", "img-9")
    world.run_out()
    assert error(world, operation)["message"] == "images is img-9: no such image"
    assert on_hosts(world)["host-0"] == set()


def test_hosts_that_fail_are_named_and_the_others_have_the_images_all_the_same() -> None:
    world = stocked(World(injected_faults=refusing))
    operation = cache(world, "img-1")
    world.run_out()
    assert world.ended(operation) is OperationState.FAILED
    fault = error(world, operation)
    assert fault["code"] == "hosts_failed"
    assert fault["message"].startswith("1 of 2 hosts have not cached the images. host-1: ")
    assert fault["data"]["done"] == ["host-0"]
    assert fault["data"]["failed"]["host-1"]["kind"] == "HostRefused"
    assert on_hosts(world)["host-0"] == {"img-1"}


def test_a_host_that_is_down_is_left_out() -> None:
    world = stocked(World())
    world.kill_host("host-1")
    world.pass_time(100.0)
    operation = cache(world, "img-1")
    world.run_out()
    assert world.ended(operation) is OperationState.SUCCEEDED
    assert world.operation(operation).data["skipped"] == ["host-1"]


def test_an_aggregate_without_a_living_host_gets_a_no() -> None:
    world = stocked(World(), hosts=())
    operation = cache(world, "img-1")
    world.run_out()
    assert (world.ended(operation), error(world, operation)["code"]) == ("FAILED", "no_host_up")


def test_requests_at_once_for_the_same_host_are_all_done_whichever_comes_first() -> None:
    world = stocked(World())
    operations = [cache(world, "img-1"), cache(world, "img-2"), cache(world, "img-1")]
    for _ in operations:
        world.deliver("conductor")
    asked = [outgoing for _ in operations if (outgoing := world.bus.take("compute_host-0"))]
    for outgoing in reversed(asked):
        world.hand_over(outgoing)
    world.run_out()
    assert [world.ended(operation) for operation in operations] == ["SUCCEEDED"] * 3
    assert on_hosts(world)["host-0"] == {"img-1", "img-2"}


def test_one_that_failed_can_be_replayed_once_the_host_is_well() -> None:
    ill = {"host-1"}

    def injected_faults(name: str) -> InjectedFaults:
        return lambda _: InjectedFault(ending="refused" if name in ill else "done")

    world = stocked(World(injected_faults=injected_faults))
    operation = cache(world, "img-1")
    world.run_out()
    assert world.ended(operation) is OperationState.FAILED
    ill.clear()
    again = world.submit("replay_operation", {"operation_id": operation})
    world.run_out()
    assert world.ended(again) is OperationState.SUCCEEDED
    assert on_hosts(world)["host-1"] == {"img-1"}
