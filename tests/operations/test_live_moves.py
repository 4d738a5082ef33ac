"""What a running guest asks of its target that a stopped one does not."""

from __future__ import annotations

from typing import Any

import pytest

from models.lifecycle import OperationState
from models.messages.hardware import host_from_json
from tests.operations.audit import check_at_rest
from tests.operations.test_moves import ask, built, error_code
from tests.operations.world import World, small_host
from workers.hypervisor.port import Hardware

LARGE = {
    "vcpus": 2,
    "memory_mb": 512,
    "extra_specs": {"hw:cpu_policy": "dedicated", "hw:mem_page_size": "large"},
}
ONE_MIB, TWO_MIB = [1024, 1000, 0, 0], [2048, 500, 0, 0]


def with_pools(*pools: list[int]) -> Hardware:
    """Return a host whose one NUMA cell has small pages and these."""
    (cell,) = small_host()["cells"]
    return Hardware(
        host_from_json({"cells": [{**cell, "mempages": [[4, 1000, 0, 0], *pools]}]}), 100
    )


def fleet_with(**pools: list[list[int]]) -> World:
    """Return a world whose hosts, `host_0` and so on, have these page pools."""
    world = World(hosts=len(pools))
    for name, wanted in pools.items():
        host = name.replace("_", "-")
        world.kill_host(host)
        world.hosts[host].hypervisor._hardware = with_pools(*wanted)
        world.restart_host(host)
    world.run_out()
    return world


def page_size(world: World, instance_id: str) -> Any:
    """Return the page size of an instance's first cell, in KiB."""
    placement = world.instance_by_id(instance_id).placement
    return placement.cells[0].page_size_kib if placement else None


@pytest.mark.parametrize("host", [None, "host-1"])
def test_a_running_guest_does_not_move_to_pages_of_another_size(host: str | None) -> None:
    """Case N43."""
    world = fleet_with(host_0=[ONE_MIB], host_1=[TWO_MIB])
    instance_id = built(world, LARGE, host="host-0")
    before = world.instance_by_id(instance_id)
    operation = ask(world, "live_migrate_instance", instance_id, host=host)
    assert error_code(world, operation) == "no_valid_host"
    assert "pages of 1 MiB" in str((world.operation(operation).error or {})["message"])
    after = world.instance_by_id(instance_id)
    assert (after.state, after.host, after.placement) == (
        before.state,
        before.host,
        before.placement,
    )
    assert not any(world.host("host-1").used.values())
    check_at_rest(world)


def test_a_running_guest_takes_the_size_it_has_where_its_target_has_larger_pages_too() -> None:
    world = fleet_with(host_0=[ONE_MIB], host_1=[ONE_MIB, TWO_MIB])
    instance_id = built(world, LARGE, host="host-0")
    operation = ask(world, "live_migrate_instance", instance_id)
    assert world.ended(operation) is OperationState.SUCCEEDED, world.operation(operation).error
    assert page_size(world, instance_id) == 1024
    check_at_rest(world)


def test_a_stopped_guest_takes_the_largest_pages_of_its_target() -> None:
    world = fleet_with(host_0=[ONE_MIB], host_1=[TWO_MIB])
    instance_id = built(world, LARGE, host="host-0")
    operation = ask(world, "migrate_instance", instance_id)
    assert world.ended(operation) is OperationState.SUCCEEDED, world.operation(operation).error
    assert page_size(world, instance_id) == 2048
