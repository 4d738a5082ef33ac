"""What instances take and hosts offer, by resource class."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.placement.resources import (
    Ratios,
    Shortage,
    amounts,
    capacity,
    inventory_of,
    shortage_of,
)
from conductor.store import Inventory
from models.errors import Rejected
from models.hardware import Flavor, Image
from models.hardware.requirements.numa_constraints import guest_topology
from models.messages.internal import Reservation
from tests.scheduling.world import flavor, host, pinned, topology


def amounts_of(wanted: Flavor, **more: bool) -> dict[str, int]:
    return dict(amounts(wanted, guest_topology(wanted, Image("image")), **more))


def test_a_plain_flavor_takes_shared_cpus_memory_and_disk() -> None:
    assert amounts_of(flavor(vcpus=4, memory_mib=2048, root_gb=20)) == {
        "VCPU": 4,
        "MEMORY_MB": 2048,
        "DISK_GB": 20,
    }


def test_dedicated_vcpus_are_taken_from_the_dedicated_cpus() -> None:
    taken = amounts_of(pinned(vcpus=4))
    assert taken["PCPU"] == 4
    assert "VCPU" not in taken


def test_a_mixed_guest_takes_of_both() -> None:
    mixed = flavor(vcpus=4, **{"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "^0"})
    taken = amounts_of(mixed)
    assert (taken["VCPU"], taken["PCPU"]) == (1, 3)


def test_isolated_emulator_threads_take_one_dedicated_cpu_more() -> None:
    assert amounts_of(pinned(vcpus=2, **{"hw:emulator_threads_policy": "isolate"}))["PCPU"] == 3


def test_amounts_of_zero_are_left_out_and_swap_rounds_up_to_gib() -> None:
    assert "DISK_GB" not in amounts_of(flavor(root_gb=0))
    assert amounts_of(Flavor("f", 1, 512, swap_mib=1))["DISK_GB"] == 1
    assert amounts_of(Flavor("f", 1, 512, 10, 5, 1025))["DISK_GB"] == 17


def test_a_volume_backed_instance_takes_no_root_disk() -> None:
    assert (
        amounts_of(Flavor("f", 1, 512, root_gb=20, ephemeral_gb=3), volume_backed=True)["DISK_GB"]
        == 3
    )


def test_an_override_replaces_what_the_size_asks_for_and_zero_removes_it() -> None:
    specs = {"resources:VCPU": "0", "resources:DISK_GB": "7", "resources:CUSTOM_GOLD": "2"}
    taken = amounts_of(flavor(vcpus=2, **specs))
    assert taken == {"MEMORY_MB": 1024, "DISK_GB": 7, "CUSTOM_GOLD": 2}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("resources:DISK_GB", "-1"),
        ("resources:DISK_GB", "two"),
        ("resources:MEMORY_MB", "1.5"),
        ("resources:DISK_GB", ""),
        ("resources:GOLD", "1"),
    ],
)
def test_an_override_that_means_nothing_is_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(Rejected) as refused:
        amounts_of(flavor(**{key: value}))
    assert refused.value.code == "resources_invalid"
    assert refused.value.key == key


def test_a_host_offers_the_cpus_of_its_sets_and_the_memory_of_its_cells() -> None:
    offered = inventory_of(
        topology(cells=2, dedicated=4, shared=6, memory_mib=4096),
        500,
        Reservation(memory_mib=1024, disk_gb=10, vcpus=2),
        Ratios(cpu=4.0, ram=1.5, disk=2.0),
    )
    assert offered == {
        "VCPU": Inventory(12, 2, 4.0, max_unit=10),
        "PCPU": Inventory(8, 0, 1.0),
        "MEMORY_MB": Inventory(8192, 1024, 1.5, max_unit=7168),
        "DISK_GB": Inventory(500, 10, 2.0, max_unit=490),
    }


def test_a_host_offers_nothing_of_what_it_does_not_have() -> None:
    assert "PCPU" not in inventory_of(topology(dedicated=0), 10, Reservation(), Ratios())


@pytest.mark.parametrize(
    ("total", "reserved", "ratio", "whole"),
    [(100, 0, 1.15, 115), (100, 0, 1.1, 110), (7, 2, 1.5, 7), (10, 20, 4.0, 0), (3, 0, 0.5, 1)],
)
def test_capacity_is_exact_in_decimal(total: int, reserved: int, ratio: float, whole: int) -> None:
    assert capacity(Inventory(total, reserved, ratio)) == whole
    assert Inventory(total, reserved, ratio).capacity == whole


def test_room_ends_exactly_at_capacity() -> None:
    small = host("a", disk_gb=100, cells=1, shared=2, dedicated=2, memory_mib=1000)
    busy = replace(small, used={"VCPU": 6})
    assert shortage_of(busy, {"VCPU": 2, "PCPU": 2, "MEMORY_MB": 1000, "DISK_GB": 100}) is None
    assert shortage_of(replace(small, used={"VCPU": 7}), {"VCPU": 2}) == Shortage("VCPU", 2, 1)
    assert shortage_of(small, {"PCPU": 3}) == Shortage("PCPU", 3, 2)
    assert shortage_of(small, {"CUSTOM_GOLD": 1}) == Shortage("CUSTOM_GOLD", 1, 0)


@pytest.mark.parametrize("used", [0, 2])
def test_one_guest_never_gets_more_than_the_host_has_of_its_own(used: int) -> None:
    small = replace(host("a", cells=1, shared=4), used={"VCPU": used})
    assert shortage_of(small, {"VCPU": 4}) is None
    assert shortage_of(small, {"VCPU": 5}) == Shortage("VCPU", 5, 4)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 1600))
def test_capacity_never_exceeds_the_formula_and_misses_less_than_one(
    total: int, reserved: int, hundredths: int
) -> None:
    whole = capacity(Inventory(total, reserved, hundredths / 100))
    exact = max(0, (total - reserved) * hundredths)
    assert whole * 100 <= exact < (whole + 1) * 100
