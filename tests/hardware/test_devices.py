"""Devices are counted pool by pool: which of them a guest gets, and that it gives them back."""

from __future__ import annotations

import pytest

from models.errors import Rejected
from models.hardware import HostTopology, Misfit, PciPool, PciRequest, Placement
from models.hardware.accounting import claim, release, without_use
from models.hardware.fitting.device_assignment import place_devices_only
from models.hardware.fitting.fit_guest import fit
from tests.hardware.builders import guest, guest_cell, host, host_cell


def pool(numa_node: int | None, count: int = 1, alias: str = "gpu") -> PciPool:
    return PciPool(numa_node, count, "10de", "1eb8", {"alias": alias})


def gpus(count: int = 1, policy: str | None = None) -> PciRequest:
    return PciRequest("gpu", count, (), policy, "CUSTOM_PCI_GPU")


def two_cells(*pools: PciPool) -> HostTopology:
    return host(host_cell(0, socket=0), host_cell(1, socket=1), pci_pools=pools)


def taken(answer: Placement | Misfit | None) -> list[tuple[int | None, int]]:
    assert isinstance(answer, Placement), answer
    return [(device.numa_node, device.count) for device in answer.devices]


def test_the_second_guest_that_requires_a_device_near_it_gets_the_other_one() -> None:
    there = two_cells(pool(0), pool(1))
    cells = []
    for _ in range(2):
        answer = fit(there, guest(guest_cell()), pci_requests=[gpus(policy="required")])
        assert isinstance(answer, Placement), answer
        assert [device.numa_node for device in answer.devices] == [answer.cells[0].host_cell]
        cells.append(answer.cells[0].host_cell)
        there = claim(there, answer)
    assert sorted(cells) == [0, 1]
    refused = fit(there, guest(guest_cell()), pci_requests=[gpus(policy="required")])
    assert isinstance(refused, Misfit)
    assert (refused.code, refused.devices) == ("devices_not_local", ("gpu",))


def test_giving_back_restores_the_pools_exactly() -> None:
    before = two_cells(pool(0, 2), pool(None, 1))
    answer = fit(before, guest(guest_cell()), pci_requests=[gpus(3, "preferred")])
    assert isinstance(answer, Placement)
    after = claim(before, answer)
    assert [pci_pool.free for pci_pool in after.pci_pools] == [0, 0]
    assert release(after, answer) == before
    assert without_use(after) == before


def test_the_nearest_devices_are_taken_first() -> None:
    there = two_cells(pool(1, 1), pool(None, 1), pool(0, 1))
    answer = fit(there, guest(guest_cell()), pci_requests=[gpus(2, "preferred")])
    assert isinstance(answer, Placement)
    near = answer.cells[0].host_cell
    assert {device.numa_node for device in answer.devices} == {near, None}


def test_whoever_is_flexible_leaves_the_near_device_to_whoever_is_not() -> None:
    there = two_cells(pool(0, 1), pool(1, 1))
    asked = [gpus(1, "preferred"), PciRequest("gpu", 1, (), "required", "CUSTOM_PCI_GPU")]
    answer = fit(there, guest(guest_cell()), pci_requests=asked)
    assert sorted(taken(answer), key=str) == [(0, 1), (1, 1)]


def test_a_guest_without_numa_cells_takes_devices_of_no_known_place_first() -> None:
    assert taken(place_devices_only(two_cells(pool(0, 3), pool(None, 1)), [gpus(2)])) == [
        (None, 1),
        (0, 1),
    ]
    assert place_devices_only(two_cells(pool(0)), []) is None


def test_a_guest_without_numa_cells_is_told_which_devices_are_missing() -> None:
    refused = place_devices_only(two_cells(pool(0, 1), pool(1, 5, "nic")), [gpus(2)])
    assert isinstance(refused, Misfit)
    assert (refused.devices, refused.need, refused.have) == (("gpu",), 2, 1)


def test_a_class_counts_only_its_own_pools() -> None:
    plain = PciPool(0, 1, "10de", "1eb8")
    there = two_cells(pool(0), plain)
    numbered = PciRequest("10de_1eb8", 1, (), None, "CUSTOM_PCI_10DE_1EB8")
    answer = place_devices_only(there, [numbered])
    assert isinstance(answer, Placement)
    assert [dict(device.tags) for device in answer.devices] == [{}]
    assert isinstance(place_devices_only(claim(there, answer), [numbered]), Misfit)


@pytest.mark.parametrize(("pools", "code"), [((), "device_unknown"), ((pool(0),), "devices_taken")])
def test_devices_that_are_not_there_or_not_free_cannot_be_claimed(
    pools: tuple[PciPool, ...], code: str
) -> None:
    answer = place_devices_only(two_cells(pool(0, 2)), [gpus(2)])
    assert isinstance(answer, Placement)
    with pytest.raises(Rejected) as refusal:
        claim(two_cells(*pools), answer)
    assert refusal.value.code == code


def test_devices_that_nobody_took_cannot_be_given_back() -> None:
    answer = place_devices_only(two_cells(pool(0, 2)), [gpus(2)])
    assert isinstance(answer, Placement)
    with pytest.raises(Rejected) as refusal:
        release(two_cells(pool(0, 2)), answer)
    assert refusal.value.code == "devices_not_taken"
