"""What a host must not say of itself when it is taken in, and what a person is told of it."""

from __future__ import annotations

import pytest

from models.errors import Rejected
from models.hardware import HostCell, HostTopology, PagePool, PciPool, mask_of
from models.hardware.host_rules import refuse_excess, remarks_on, sound
from tests.hardware.builders import cores, host, host_cell


def sets(shared: list[int], dedicated: list[int], number: int = 0) -> HostCell:
    return host_cell(number, cpus=dedicated, shared_cpus=mask_of(shared), siblings=())


def refusal_of(topology: HostTopology) -> Rejected:
    with pytest.raises(Rejected) as refusal:
        sound(topology)
    return refusal.value


def test_a_cpu_in_both_sets_is_refused_by_its_number() -> None:
    refused = refusal_of(host(sets([0, 1, 13], [2, 13])))
    assert (refused.code, refused.key) == ("cpu_in_both_sets", "cells.0.pcpuset")
    assert "CPU 13," in refused.message


def test_the_old_style_is_one_set_for_all_cells_or_none() -> None:
    old = host(sets([0, 1], [0, 1]), sets([2, 3], [2, 3], 1))
    assert sound(old) == old
    (remark,) = remarks_on(old)
    assert "0-3" in remark
    assert refusal_of(host(sets([0, 1], [0, 1]), sets([2], [3], 1))).code == "cpu_in_both_sets"


def test_sets_that_cut_a_core_in_two_are_said() -> None:
    cell = host_cell(cpus=[2, 3, 9], shared_cpus=mask_of([0, 1, 8]), siblings=cores([0, 8], [1, 9]))
    (remark,) = remarks_on(host(cell))
    assert "threads 1,9" in remark


def test_cpus_that_are_nobodys_cut_a_core_too() -> None:
    """K03: keeping CPU 0 back without its sibling leaves others on its core."""
    cell = host_cell(cpus=[24], shared_cpus=0, siblings=cores([0, 24]))
    assert "threads 0,24" in next(remarks_on(host(cell)))
    assert list(remarks_on(host(host_cell(cpus=[1, 25], siblings=cores([0, 24], [1, 25]))))) == []


def test_more_pages_kept_back_than_there_are_is_refused_with_both_numbers() -> None:
    refused = refusal_of(host(host_cell(page_pools=(PagePool(4, 100), PagePool(2048, 5, 0, 6)))))
    assert refused.code == "pages_reserved_exceed_total"
    assert "reserves 6 pages of 2048 KiB: NUMA cell 0 has 5" in refused.message


@pytest.mark.parametrize("alias", ["two words", "ä", "a" * 65])
def test_devices_that_no_flavor_can_name_are_refused(alias: str) -> None:
    pool = PciPool(0, 1, "10de", "1eb8", {"alias": alias})
    assert refusal_of(host(host_cell(), pci_pools=(pool,))).code == "device_alias_invalid"
    assert refusal_of(host(host_cell(), pci_pools=(PciPool(0, 1),))).code == "device_alias_invalid"


def test_devices_of_one_kind_on_one_cell_are_one_pool() -> None:
    pool = PciPool(0, 1, "10de", "1eb8")
    assert [pci_pool.count for pci_pool in sound(host(pci_pools=(pool, pool))).pci_pools] == [2]


def test_a_host_that_keeps_more_for_itself_than_it_has_is_refused() -> None:
    refuse_excess("memory", 4096, 4096, "MiB")
    with pytest.raises(Rejected, match="reserved memory is 4097 MiB: the host has 4096"):
        refuse_excess("memory", 4097, 4096, "MiB")


def test_devices_of_a_cell_that_is_not_there_are_refused_and_minus_one_is_no_cell() -> None:
    pool = PciPool(7, 1, "10de", "1eb8")
    assert refusal_of(host(host_cell(), pci_pools=(pool,))).code == "device_cell_unknown"
    nowhere = sound(host(host_cell(socket=-1), pci_pools=(PciPool(-1, 1, "10de", "1eb8"),)))
    assert nowhere.pci_pools[0].numa_node is None
    assert nowhere.cells[0].socket is None


def test_a_physical_network_without_a_name_is_refused() -> None:
    nameless = host(host_cell(physnets=frozenset({"datacentre", " "})))
    assert refusal_of(nameless).code == "physnet_invalid"
