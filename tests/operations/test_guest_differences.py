"""A guest that its host has otherwise than the database: named, and nothing of it sold twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from conductor.placement.consistency.allocation_audit import audit, read_books
from models.lifecycle import OperationState
from tests.operations.test_moves import ask, built
from tests.operations.world import PINNED, SHARED, World, small_host
from workers.hypervisor.simulated import SimulatedHypervisor


def by_hand(world: World, instance_id: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a guest's definition behind everybody's back, and let its host report."""
    for host in world.hosts.values():
        domains = _domains_of(host.hypervisor)
        domain = domains.get(instance_id)
        if domain is not None:
            data = json.loads(json.dumps(domain.spec.model_dump()))
            change(data)
            domains[instance_id] = replace(domain, spec=type(domain.spec)(**data))
    world.pass_time(100.0)
    world.settle()


def _domains_of(hypervisor: SimulatedHypervisor) -> Any:
    return hypervisor._domains


def repin(data: dict[str, Any]) -> None:
    cell = data["placement"]["cells"][0]
    cell["cpu_pinning"] = {"0": 6, "1": 7}


def grow(data: dict[str, Any]) -> None:
    data["memory_mib"] = 2048


def add_vcpu(data: dict[str, Any]) -> None:
    data["vcpus"] = 3


def forget_place(data: dict[str, Any]) -> None:
    data["placement"] = None


def other_memory(data: dict[str, Any]) -> None:
    data["placement"]["cells"][0]["memory"] = 512


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (repin, "CPU 6-7, not 4-5"),
        (grow, "2048 MiB, not 1024"),
        (add_vcpu, "3 vCPUs, not 2"),
        (forget_place, "0 NUMA cells, not 1"),
        (other_memory, "512 MiB in guest cell 0, not 1024 MiB"),
    ],
)
def test_a_guest_changed_by_hand_is_named_and_its_host_takes_no_more(
    change: Callable[[dict[str, Any]], object], said: str
) -> None:
    world = World(hosts=1)
    instance_id = built(world, PINNED)
    by_hand(world, instance_id, change)
    reason = world.host("host-0").degraded or ""
    assert reason.startswith("guests are not as placed")
    assert f"{instance_id} has {said}" in reason
    with world.store.read() as uow:
        (finding,) = audit(read_books(uow))
    assert (finding.code, finding.provider, finding.healable) == ("reported", "host-0", False)
    assert instance_id in finding.message
    refused = world.build(SHARED)
    world.run_out()
    assert world.ended(refused) is OperationState.FAILED


def test_a_host_is_open_again_once_its_guest_is_as_placed() -> None:
    world = World(hosts=1)
    instance_id = built(world, PINNED)
    before = world.hosts["host-0"].hypervisor.domains()[0]
    by_hand(world, instance_id, repin)
    assert world.host("host-0").degraded is not None
    _domains_of(world.hosts["host-0"].hypervisor)[instance_id] = before
    world.pass_time(100.0)
    world.settle()
    assert world.host("host-0").degraded is None


def test_after_moves_and_resizes_guests_are_as_placed() -> None:
    world = World(hosts=2, hardware=small_host(cells=2))
    instance_id = built(world, PINNED)
    other = built(world, SHARED)
    for item in (instance_id, other):
        for task, arguments in (
            ("live_migrate_instance", {}),
            ("migrate_instance", {}),
            ("confirm_resize", {}),
            ("resize_instance", {"flavor": {**PINNED, "vcpus": 3}}),
            ("revert_resize", {}),
            ("stop_instance", {}),
            ("start_instance", {}),
        ):
            operation = ask(world, task, item, **arguments)
            assert world.ended(operation) is OperationState.SUCCEEDED, task
            world.pass_time(100.0)
            world.settle()
            assert [world.host(name).degraded for name in world.hosts] == [None, None], task
