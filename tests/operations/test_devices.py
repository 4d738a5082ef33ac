"""Devices through every operation: held where the guest is, by pool, and given back exactly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from conductor.hosts import host_administration
from conductor.placement.consistency.allocation_audit import audit, read_books
from models.lifecycle import OperationState
from tests.operations.test_moves import ask, built
from tests.operations.world import World, small_host

ALIAS = "pci_passthrough:alias"
PLAIN = {"vcpus": 1, "memory_mb": 512, "extra_specs": {ALIAS: "gpu:1"}}
REQUIRED = {"hw:cpu_policy": "dedicated", "hw:pci_numa_affinity_policy": "required"}
NEAR = {**PLAIN, "extra_specs": {**REQUIRED, ALIAS: "gpu:1"}}
TWO_NEAR = {**PLAIN, "extra_specs": {**REQUIRED, ALIAS: "gpu:2"}}
BY_CLASS = {"vcpus": 1, "memory_mb": 512, "extra_specs": {"resources:CUSTOM_PCI_GPU": "1"}}
IN_GROUP = {"vcpus": 1, "memory_mb": 512, "extra_specs": {"resources1:CUSTOM_PCI_GPU": "1"}}


def hardware(*counts: int, alias: str = "gpu") -> dict[str, Any]:
    """Return a host with a NUMA cell for each count, and so many devices on it."""
    pools = [
        {
            "numa_node": n,
            "count": c,
            "vendor_id": "10de",
            "product_id": "1eb8",
            "tags": {"alias": alias},
        }
        for n, c in enumerate(counts)
        if c
    ]
    return {**small_host(cells=len(counts)), "pci_pools": pools}


def done(world: World, task: str, instance_id: str, **arguments: object) -> None:
    """Ask for something that succeeds."""
    operation = ask(world, task, instance_id, **arguments)
    assert world.ended(operation) is OperationState.SUCCEEDED, world.operation(operation)


def used(world: World) -> dict[str, list[int]]:
    """Return by host how many devices of each pool are in use, checked against all sums."""
    with world.store.read() as uow:
        assert audit(read_books(uow)) == []
        found = uow.hosts.where()
    return {host.name: [pool.used for pool in host.topology.pci_pools] for host in found}


@pytest.mark.parametrize("flavor", [PLAIN, NEAR, BY_CLASS, IN_GROUP])
def test_a_build_takes_a_device_and_a_delete_gives_it_back(flavor: Mapping[str, object]) -> None:
    world = World(hosts=1, hardware=hardware(1, 1))
    one = built(world, flavor)
    assert sorted(used(world)["host-0"]) == [0, 1]
    two = built(world, flavor)
    assert used(world)["host-0"] == [1, 1]
    refused = world.build(flavor)
    world.run_out()
    assert world.ended(refused) is OperationState.FAILED
    assert "CUSTOM_PCI_GPU" in str(world.operation(refused).error)
    for name in (one, two):
        ask(world, "delete_instance", name)
    assert used(world)["host-0"] == [0, 0]


def test_two_guests_that_require_the_device_of_one_cell_do_not_both_get_it() -> None:
    world = World(hosts=1, hardware=hardware(1, 1))
    cells = set()
    for _ in range(2):
        placement = world.instance_by_id(built(world, NEAR)).placement
        assert placement is not None
        (near,) = placement.cells
        assert [device.numa_node for device in placement.devices] == [near.host_cell]
        cells.add(near.host_cell)
    assert cells == {0, 1}


def test_a_device_that_is_free_but_not_near_is_named_as_the_device() -> None:
    world = World(hosts=1, hardware=hardware(1, 1))
    refused = world.build(TWO_NEAR)
    world.run_out()
    message = str((world.operation(refused).error or {})["message"])
    assert "free devices gpu near the NUMA cells that fit" in message
    assert "CPU" not in message.replace("NUMA", "")


def scenario(world: World, instance_id: str, name: str) -> Iterator[dict[str, int]]:
    """Do it step by step; yield how many devices each host should have in use."""
    if name in ("confirm", "revert"):
        done(world, "migrate_instance", instance_id)
        yield {"host-0": 1, "host-1": 1}
        done(world, f"{name}_resize", instance_id)
        yield {"host-0": 0, "host-1": 1} if name == "confirm" else {"host-0": 1, "host-1": 0}
    elif name == "resize":
        done(world, "resize_instance", instance_id, flavor=TWO_NEAR)
        yield {"host-0": 1, "host-1": 2}
        done(world, "confirm_resize", instance_id)
        yield {"host-0": 0, "host-1": 2}
    elif name == "shelve":
        done(world, "shelve_instance", instance_id, offload=True)
        yield {"host-0": 0, "host-1": 0}
        done(world, "unshelve_instance", instance_id, host="host-1")
        yield {"host-0": 0, "host-1": 1}
    elif name == "evacuate":
        world.kill_host("host-0")
        with world.store.begin() as uow:
            host_administration.force_down(uow, "host-0", None)
        done(world, "evacuate_instance", instance_id)
        yield {"host-0": 0, "host-1": 1}
    elif name == "rebuild":
        done(world, "rebuild_instance", instance_id, image={"id": "other"})
        yield {"host-0": 1, "host-1": 0}


def test_a_guest_with_devices_of_its_host_does_not_move_while_it_runs() -> None:
    world = World(hosts=2, hardware=hardware(0, 2))
    instance_id = built(world, NEAR, host="host-0")
    refused = ask(world, "live_migrate_instance", instance_id)
    error = world.operation(refused).error or {}
    assert (error["code"], error["key"]) == ("devices_not_movable", "instance_id")
    assert "migrate it cold" in error["message"]
    assert {host: sum(pools) for host, pools in used(world).items()} == {"host-0": 1, "host-1": 0}


@pytest.mark.parametrize("flavor", [PLAIN, NEAR])
@pytest.mark.parametrize("name", ["confirm", "revert", "resize", "shelve", "evacuate", "rebuild"])
def test_devices_follow_their_guest_through(name: str, flavor: Mapping[str, object]) -> None:
    world = World(hosts=2, hardware=hardware(0, 2))
    instance_id = built(world, flavor, host="host-0")
    for expected in scenario(world, instance_id, name):
        assert {host: sum(pools) for host, pools in used(world).items()} == expected
    done(world, "delete_instance", instance_id)
    assert not any(sum(pools) for pools in used(world).values())


def test_a_restart_of_the_worker_changes_nothing_of_devices_in_use() -> None:
    world = World(hosts=1, hardware=hardware(1, 1))
    built(world, NEAR)
    before = used(world)
    world.kill_host("host-0")
    world.restart_host("host-0")
    world.run_out()
    assert used(world) == before
    assert world.host("host-0").degraded is None


def test_an_alias_and_an_amount_of_its_class_that_differ_are_refused() -> None:
    world = World(hosts=1, hardware=hardware(2))
    specs = {ALIAS: "gpu:1", "resources:CUSTOM_PCI_GPU": "0"}
    refused = world.build({"vcpus": 1, "memory_mb": 512, "extra_specs": specs})
    world.run_out()
    assert world.ended(refused) is OperationState.FAILED
    assert "resources:CUSTOM_PCI_GPU" in str(world.operation(refused).error)
