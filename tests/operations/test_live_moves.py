"""What a running guest asks of its target that a stopped one does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from models.lifecycle import OperationState
from models.messages.hardware.hardware_json import host_from_json
from tests.operations.audit import check_at_rest
from tests.operations.test_moves import ask, built, error_code, on_verb
from tests.operations.world import PINNED, World, small_host
from workers.hypervisor.ports import Hardware

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
    """The guest's pages are of the size that it runs with."""
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


def test_a_target_that_could_not_run_the_guest_is_left_before_anything_is_made_there() -> None:
    world = World(hosts=3, injected_faults=on_verb("refused", "check_target", "host-1"))
    instance_id = built(world, PINNED, host="host-0")
    operation = ask(world, "live_migrate_instance", instance_id)
    assert world.ended(operation) is OperationState.SUCCEEDED, world.operation(operation).error
    assert world.instance_by_id(instance_id).host == "host-2"
    assert world.hosts["host-1"].hypervisor.calls(instance_id, "spawn") == 0
    check_at_rest(world)


@pytest.mark.parametrize("block_migration", [None, True, False])
def test_the_disk_is_copied_because_of_where_it_is_and_nobody_can_ask_otherwise(
    block_migration: bool | None,
) -> None:
    world = World(hosts=2)
    instance_id = built(world, {**PINNED, "root_gb": 2}, host="host-0")
    operation = ask(world, "live_migrate_instance", instance_id, block_migration=block_migration)
    if block_migration is False:
        assert error_code(world, operation) == "disk_is_local"
        assert world.instance_by_id(instance_id).host == "host-0"
    else:
        assert world.ended(operation) is OperationState.SUCCEEDED
    check_at_rest(world)


@pytest.mark.parametrize("block_migration", [True, False])
def test_a_guest_without_a_disk_has_none_to_copy(block_migration: bool) -> None:
    world = World(hosts=2)
    instance_id = built(world, PINNED, host="host-0")
    operation = ask(world, "live_migrate_instance", instance_id, block_migration=block_migration)
    assert world.ended(operation) is OperationState.SUCCEEDED


def test_a_disk_that_both_ends_share_is_not_written_over() -> None:
    world = World(hosts=2)
    instance_id = built(world, {**PINNED, "root_gb": 2}, host="host-0")
    with world.store.begin() as uow:
        (held,) = uow.allocations.where(consumer_id=instance_id)
        own = {name: amount for name, amount in held.amounts.items() if name != "DISK_GB"}
        uow.allocations.save(replace(held, amounts=own))
        uow.allocations.add(replace(held, provider="nfs", amounts={"DISK_GB": 2}))
    asked = {"instance_id": instance_id, "block_migration": True}
    operation = world.submit("live_migrate_instance", asked)
    world.run_out()
    assert error_code(world, operation) == "disk_is_shared"
    assert "nfs" in str((world.operation(operation).error or {})["message"])
