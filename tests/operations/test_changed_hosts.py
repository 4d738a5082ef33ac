"""A host that returns changed: taken in with its guests, closed where it contradicts them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from conductor.hosts import host_administration
from conductor.placement.consistency.allocation_audit import audit, read_books
from conductor.placement.local.store_placement import StorePlacement
from conductor.placement.ports import ProviderQuery
from conductor.placement.providers import over_committed, root_of
from models.errors import Rejected
from models.hardware.accounting import without_use
from models.lifecycle import OperationState
from models.messages.hardware.hardware_json import host_from_json
from tests.operations.audit import check_at_rest
from tests.operations.world import PINNED, SHARED, World, small_host
from workers.hypervisor.ports import Hardware


def return_with(world: World, cpus: int) -> None:
    """Let host-0 come back with so many shared and dedicated CPUs, and be listened to."""
    world.kill_host("host-0")
    hardware = Hardware(host_from_json(small_host(cpus=cpus)), 100)
    world.hosts["host-0"].hypervisor._hardware = hardware
    world.restart_host("host-0")
    world.run_out()
    world.pass_time(100.0)


def test_a_host_stays_degraded_while_it_is_changed_whatever_its_accounting_says() -> None:
    world = World(hosts=1)
    pinned, shared = world.build(PINNED), world.build(SHARED)
    world.run_out()
    return_with(world, cpus=1)  # the dedicated CPUs of the first guest are gone
    assert (world.host("host-0").degraded or "").startswith("hardware changed")
    world.submit("delete_instance", {"instance_id": world.instance(pinned).id})
    world.run_out()
    world.pass_time(100.0)
    assert (world.host("host-0").degraded or "").startswith("hardware changed")
    refused = world.build(SHARED)
    world.run_out()
    assert world.ended(refused) is OperationState.FAILED
    return_with(world, cpus=4)
    assert world.host("host-0").degraded is None
    assert world.instance(shared).host == "host-0"
    check_at_rest(world)


def test_a_host_that_keeps_more_for_itself_than_is_left_takes_no_more() -> None:
    world = World(hosts=1)
    world.build(SHARED)
    world.run_out()
    world.kill_host("host-0")
    world.restart_host("host-0", reserved_memory_mib=3_900)
    world.run_out()
    host = world.host("host-0")
    assert host.degraded is None
    assert over_committed(root_of(host)) == {"MEMORY_MB": 512 - 196}
    refused = world.build(SHARED)
    world.run_out()
    assert world.ended(refused) is OperationState.FAILED
    with world.store.read() as uow:
        codes = [finding.code for finding in audit(read_books(uow))]
    assert codes == ["over_committed"]
    world.kill_host("host-0")
    world.restart_host("host-0")
    world.run_out()
    welcome = world.build(SHARED)
    world.run_out()
    assert world.ended(welcome) is OperationState.SUCCEEDED
    check_at_rest(world)


def test_ratios_that_an_operator_changes_hold_for_hosts_that_are_in_use() -> None:
    world = World(hosts=1)
    world.build(SHARED, count=4)
    world.run_out()
    world.settings = world.settings.model_copy(update={"cpu_allocation_ratio": 2.0})
    world.restart_conductor()
    world.restart_host("host-0")
    world.run_out()
    host = world.host("host-0")
    assert host.degraded is None
    assert host.inventory["VCPU"].ratio == 2.0


def cells(*dedicated: list[int], **changes: Any) -> dict[str, Any]:
    """Return a host whose cells have these dedicated CPUs, and one shared one each."""
    memory = changes.pop("memory", 4096)
    return {
        "cells": [
            {
                "id": n,
                "socket": n,
                "cpuset": [100 + n],
                "pcpuset": cpus,
                "memory": memory,
                "siblings": [],
                "mempages": changes.get("mempages", [[4, memory * 256, 0, 0]]),
            }
            for n, cpus in enumerate(dedicated)
        ],
        "pci_pools": changes.get("pci_pools", []),
    }


def come_back(world: World, hardware: dict[str, Any]) -> None:
    world.kill_host("host-0")
    world.hosts["host-0"].hypervisor._hardware = Hardware(host_from_json(hardware), 100)
    world.restart_host("host-0")
    world.run_out()
    world.pass_time(100.0)


FOUR = [0, 1, 2, 3]
SMALL = [[4, 4096 * 192, 0, 0], [2048, 512, 0, 0]]


@pytest.mark.parametrize(
    "changed",
    [
        cells([0, 1, 2, 3, 4, 5]),  # a wider set
        cells([0, 1]),  # a narrower one, of CPUs that nobody has
        cells(FOUR, [4, 5]),  # another NUMA cell
        cells(FOUR, memory=4096 - 41),  # what a reboot takes
        cells(FOUR, memory=4096 + 41),
        cells(FOUR, mempages=SMALL),  # huge pages
        cells(FOUR, pci_pools=[{"numa_node": 0, "count": 1, "tags": {"alias": "gpu"}}]),
    ],
)
def test_what_contradicts_no_guest_is_taken_in_while_guests_run(changed: dict[str, Any]) -> None:
    world = World(hosts=1, hardware=cells(FOUR))
    guest = world.build(PINNED)
    world.run_out()
    come_back(world, changed)
    host = world.host("host-0")
    assert (host.degraded, host.reported) == (None, None)
    now = host_from_json(changed)
    assert without_use(host.topology) == now
    with world.store.read() as uow:
        assert audit(read_books(uow)) == []
    world.submit("delete_instance", {"instance_id": world.instance(guest).id})
    world.run_out()
    assert world.host("host-0").topology == now
    check_at_rest(world)


def test_memory_that_drifts_under_a_full_host_closes_nothing_and_offers_nothing() -> None:
    world = World(hosts=1, hardware=cells(FOUR))
    full = {"vcpus": 1, "memory_mb": 4096, "extra_specs": {"hw:cpu_policy": "dedicated"}}
    world.build(full)
    world.run_out()
    come_back(world, cells(FOUR, memory=4096 - 41))
    assert world.host("host-0").degraded is None
    refused = world.build(PINNED)
    world.run_out()
    assert world.ended(refused) is OperationState.FAILED


GPU = [{"numa_node": 0, "count": 1, "vendor_id": "10de", "product_id": "1eb8",
        "tags": {"alias": "gpu"}}]  # fmt: skip
WITH_GPU = {
    **PINNED,
    "extra_specs": {"hw:cpu_policy": "dedicated", "pci_passthrough:alias": "gpu:1"},
}
LARGE = {**PINNED, "extra_specs": {"hw:cpu_policy": "dedicated", "hw:mem_page_size": "large"}}


@pytest.mark.parametrize(
    ("flavor", "before", "after", "lost"),
    [
        (PINNED, cells(FOUR), cells([2, 3]), "dedicated CPU 0-1 of NUMA cell 0"),
        (PINNED, cells(FOUR), cells([0, 2, 3]), "dedicated CPU 1 of NUMA cell 0"),
        (WITH_GPU, cells(FOUR, pci_pools=GPU), cells(FOUR), "devices 10de:1eb8"),
        (
            LARGE,
            cells(FOUR, mempages=SMALL),
            cells(FOUR, mempages=[[4, 4096 * 192, 0, 0], [2048, 511, 0, 0]]),
            "pages of 2048 KiB of NUMA cell 0 (guests have 512, there are 511)",
        ),
        (LARGE, cells(FOUR, mempages=SMALL), cells(FOUR), "pages of 2048 KiB of NUMA cell 0"),
    ],
)
def test_what_a_guest_has_lost_closes_the_host_and_is_named(
    flavor: dict[str, Any], before: dict[str, Any], after: dict[str, Any], lost: str
) -> None:
    world = World(hosts=1, hardware=before)
    guest = world.build(flavor)
    world.run_out()
    instance_id = world.instance(guest).id
    come_back(world, after)
    reason = world.host("host-0").degraded or ""
    assert f"{instance_id} has lost" in reason
    assert lost in reason
    with pytest.raises(Rejected, match=instance_id), world.store.begin() as uow:
        host_administration.set_enabled(uow, "host-0", enabled=True, reason=None)
    world.submit("delete_instance", {"instance_id": instance_id})
    world.run_out()
    world.pass_time(100.0)
    reason = world.host("host-0").degraded or ""
    assert "`hosts enable` takes it in" in reason  # and no guest that has gone is blamed
    with world.store.begin() as uow:
        host_administration.set_enabled(uow, "host-0", enabled=True, reason=None)
    host = world.host("host-0")
    assert (host.degraded, host.reported) == (None, None)
    assert host.topology == host_from_json(after)
    welcome = world.build(PINNED)
    world.run_out()
    assert world.ended(welcome) is OperationState.SUCCEEDED
    check_at_rest(world)


def test_a_move_that_is_not_confirmed_keeps_its_cpus_on_both_sides() -> None:
    world = World(hosts=2, hardware=cells(FOUR))
    guest = world.build(PINNED, host="host-0")
    world.run_out()
    instance_id = world.instance(guest).id
    world.submit("migrate_instance", {"instance_id": instance_id})
    world.run_out()
    come_back(world, cells([0, 1, 2, 3, 4]))
    assert world.host("host-0").degraded is None
    assert world.host("host-0").topology.cells[0].pinned_cpus == 0b11
    come_back(world, cells([3, 4]))
    assert f"{instance_id} has lost dedicated CPU 0-1" in (world.host("host-0").degraded or "")
    world.submit("confirm_resize", {"instance_id": instance_id})
    world.run_out()
    with world.store.begin() as uow:
        host_administration.set_enabled(uow, "host-0", enabled=True, reason=None)
    assert world.host("host-0").topology.cells[0].pinned_cpus == 0
    check_at_rest(world)


def traits_of(world: World, *told: str) -> set[str]:
    world.kill_host("host-0")
    hypervisor = world.hosts["host-0"].hypervisor
    hypervisor._hardware = replace(hypervisor._hardware, traits=told)
    world.restart_host("host-0")
    world.run_out()
    return set(world.host("host-0").traits)


def test_traits_that_a_host_no_longer_tells_of_go_and_those_of_others_stay() -> None:
    world = World(hosts=1)
    assert traits_of(world, "HW_CPU_X86_AVX", "HW_CPU_X86_AVX2") == {
        "HW_CPU_X86_AVX",
        "HW_CPU_X86_AVX2",
    }
    with world.store.begin() as uow:
        placement = StorePlacement(uow)
        placement.ensure_traits(["CUSTOM_RACK_7"])
        (root,) = placement.providers(ProviderQuery(name="host-0"))
        placement.set_traits(root.id, [*root.traits, "CUSTOM_RACK_7"], root.generation)
    assert traits_of(world, "HW_CPU_X86_AVX2") == {"HW_CPU_X86_AVX2", "CUSTOM_RACK_7"}
    assert traits_of(world) == {"CUSTOM_RACK_7"}


def test_pages_that_a_host_keeps_back_are_not_offered_as_memory() -> None:
    kept = [[4, 4096 * 192, 0, 0], [2048, 512, 0, 256]]
    world = World(hosts=1, hardware=cells(FOUR, mempages=kept))
    assert world.host("host-0").inventory["MEMORY_MB"].reserved == 512


def test_an_old_style_host_offers_each_cpu_once() -> None:
    """CPUs in both sets are dedicated: nobody shares what somebody has pinned."""
    hardware = cells(FOUR)
    hardware["cells"][0]["cpuset"] = FOUR
    world = World(hosts=1, hardware=hardware)
    assert world.host("host-0").inventory["PCPU"].total == 4
    assert "VCPU" not in world.host("host-0").inventory
    pinned, shared = world.build({**PINNED, "vcpus": 4}), world.build(SHARED)
    world.run_out()
    assert world.ended(pinned) is OperationState.SUCCEEDED
    assert world.ended(shared) is OperationState.FAILED
