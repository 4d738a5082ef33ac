"""Which host cells are taken first, and what a whole choice must offer."""

from __future__ import annotations

from models.hardware import (
    GuestTopology,
    HostTopology,
    Limits,
    Misfit,
    PagePool,
    PciPool,
    PciRequest,
    Placement,
    mask_of,
)
from models.hardware.fitting.fit_guest import fit
from tests.hardware.builders import GIB, guest, guest_cell, host, host_cell, host_cells, sized_guest

ONE_NIC = (PciRequest("nic", 1, ({"product_id": "nic"},)),)


def nics(numa_node: int | None, count: int = 1) -> PciPool:
    return PciPool(numa_node, count, "8086", "nic")


def requests(policy: str | None, count: int = 1) -> tuple[PciRequest, ...]:
    return (PciRequest("nic", count, ({"product_id": "nic"},), policy),)


def shared(vcpus: int = 1, memory_mib: int = GIB) -> GuestTopology:
    mask = mask_of(range(vcpus))
    return guest(
        guest_cell(cpu_policy="shared", dedicated_vcpus=0, shared_vcpus=mask, memory_mib=memory_mib)
    )


def busy_host() -> HostTopology:
    """Cell 0 has two CPUs pinned, cell 1 none but less free memory, cell 2 one pinned."""
    return host(
        host_cell(0, pinned_cpus=mask_of([0, 1])),
        host_cell(1, memory_used_mib=2 * GIB),
        host_cell(2, pinned_cpus=mask_of([8])),
    )


def test_spreading_takes_the_cell_with_most_free_cpus_and_packing_the_one_with_fewest() -> None:
    """Check H13."""
    assert host_cells(fit(busy_host(), sized_guest(1))) == [1]
    assert host_cells(fit(busy_host(), sized_guest(1), pack=True)) == [0]


def test_free_memory_decides_among_cells_equal_in_cpus() -> None:
    """Check H13."""
    cells = host(host_cell(0, memory_used_mib=GIB), host_cell(1), host_cell(2))
    assert host_cells(fit(cells, sized_guest(1))) == [1]
    assert host_cells(fit(cells, sized_guest(1), pack=True)) == [0]


def test_shared_guests_look_at_shared_use() -> None:
    cells = host(
        host_cell(0, shared_cpus=mask_of([20]), cpu_used=1),
        host_cell(1, shared_cpus=mask_of([21]), pinned_cpus=mask_of([4])),
    )
    assert host_cells(fit(cells, shared())) == [1]
    assert host_cells(fit(cells, shared(), pack=True)) == [0]


def test_with_as_many_guest_cells_as_host_cells_host_order_is_kept() -> None:
    """Check H12."""
    full = host(host_cell(0, pinned_cpus=mask_of([0, 1])), host_cell(1))
    assert host_cells(fit(full, sized_guest(1, 1))) == [0, 1]


def test_guests_without_devices_prefer_the_cells_with_the_fewest_packed_or_not() -> None:
    """Checks H13 and H14."""
    cells = host(host_cell(0), host_cell(1, pinned_cpus=mask_of([4])), pci_pools=(nics(0),))
    for pack in (False, True):
        assert host_cells(fit(cells, sized_guest(1), pack=pack)) == [1]


def test_guests_with_devices_prefer_the_cells_with_the_most_packed_or_not() -> None:
    """Check H13."""
    pools = (nics(0), nics(1, 3))
    cells = host(host_cell(0), host_cell(1, pinned_cpus=mask_of([4])), pci_pools=pools)
    for pack in (False, True):
        answer = fit(cells, sized_guest(1), pack=pack, pci_requests=requests("preferred"))
        assert host_cells(answer) == [1]


def test_a_required_device_decides_the_cell_and_a_preferred_one_does_not() -> None:
    small = host_cell(0, memory_mib=GIB)
    cells = host(small, host_cell(1), pci_pools=(nics(0),))
    wanted = sized_guest(2)
    answer = fit(cells, wanted, pci_requests=requests("required"))
    assert isinstance(answer, Misfit)
    assert answer.code == "devices_not_local"
    assert host_cells(fit(cells, wanted, pci_requests=requests("preferred"))) == [1]


def test_legacy_takes_devices_of_unknown_place_and_required_does_not() -> None:
    cells = host(host_cell(0), pci_pools=(nics(None),))
    assert host_cells(fit(cells, sized_guest(1), pci_requests=requests(None))) == [0]
    assert host_cells(fit(cells, sized_guest(1), pci_requests=requests("legacy"))) == [0]
    assert isinstance(fit(cells, sized_guest(1), pci_requests=requests("required")), Misfit)


def test_a_device_of_the_same_socket_is_near_enough_for_socket() -> None:
    cells = host(
        host_cell(0, socket=0),
        host_cell(1, socket=0, memory_mib=GIB),
        host_cell(2, socket=1),
        pci_pools=(nics(1),),
    )
    assert host_cells(fit(cells, sized_guest(2), pci_requests=requests("socket"))) == [0]
    assert isinstance(fit(cells, sized_guest(2), pci_requests=requests("required")), Misfit)


def test_devices_are_shared_out_so_that_every_request_gets_its_own() -> None:
    """The first request could take the only device that suits the second."""
    pools = (PciPool(0, 1, "8086", "a", {"fast": "yes"}), PciPool(0, 1, "8086", "a"))
    any_a = PciRequest("1", 1, ({"product_id": "a"},), "required")
    fast_a = PciRequest("2", 1, ({"product_id": "a", "fast": "yes"},), "required")
    cells = host(host_cell(0), pci_pools=pools)
    for order in ((any_a, fast_a), (fast_a, any_a)):
        assert host_cells(fit(cells, sized_guest(1), pci_requests=order)) == [0]
    assert isinstance(fit(cells, sized_guest(1), pci_requests=(fast_a, fast_a)), Misfit)


def test_a_network_local_to_a_cell_is_local_to_a_chosen_one() -> None:
    red = frozenset({"red"})
    cells = host(host_cell(0), host_cell(1, physnets=red, pinned_cpus=mask_of([4])))
    assert host_cells(fit(cells, sized_guest(1), Limits(physnets=red))) == [1]
    assert host_cells(fit(cells, sized_guest(1), Limits(physnets=frozenset({"blue"})))) == [0]
    answer = fit(cells, guest(guest_cell(vcpus=4)), Limits(physnets=red))
    assert isinstance(answer, Misfit)
    assert answer.code == "network_not_local"


def test_tunnelled_networks_count_like_any_other() -> None:
    cells = host(host_cell(0), host_cell(1, tunneled=True))
    assert host_cells(fit(cells, sized_guest(1), Limits(tunneled=True))) == [1]
    assert host_cells(fit(cells, sized_guest(1), Limits(tunneled=False))) == [0]


def test_networks_and_devices_on_different_cells_need_a_guest_of_two() -> None:
    cells = host(host_cell(0, physnets=frozenset({"red"})), host_cell(1), pci_pools=(nics(1),))
    limits = Limits(physnets=frozenset({"red"}))
    one = fit(cells, sized_guest(1), limits, pci_requests=requests("required"))
    assert isinstance(one, Misfit)
    assert one.code == "affinity_not_satisfiable"
    two = fit(cells, sized_guest(1, 1), limits, pci_requests=requests("required"))
    assert host_cells(two) == [0, 1]


def test_shared_guests_overcommit_pages_within_the_ratio_but_never_against_themselves() -> None:
    """Check H16."""
    used = PagePool(4, 4 * GIB * 256, used=4 * GIB * 256)
    cell = host_cell(
        shared_cpus=mask_of([20, 21]), page_pools=(used,), memory_used_mib=4 * GIB, cpu_used=2
    )
    limits = Limits(2.0, 1.5)
    assert host_cells(fit(host(cell), shared(2, 2 * GIB), limits)) == [0]
    over_memory = fit(host(cell), shared(2, 3 * GIB), limits)
    assert isinstance(over_memory, Misfit)
    assert over_memory.cells[0].code == "memory_limit_exceeded"
    over_cpus = fit(host(cell), shared(2), Limits(1.5, 4.0))
    assert isinstance(over_cpus, Misfit)
    assert over_cpus.cells[0].code == "cpu_limit_exceeded"
    itself = fit(host(cell), shared(3), Limits(16.0, 16.0))
    assert isinstance(itself, Misfit)
    assert itself.cells[0].code == "not_enough_shared_cpus"


def test_dedicated_guests_need_free_pages_of_the_smallest_pool() -> None:
    """Check H16."""
    pools = (PagePool(1024**2, 4), PagePool(4, 2 * GIB * 256, used=GIB * 256))
    cell = host_cell(page_pools=pools)
    assert host_cells(fit(host(cell), sized_guest(1))) == [0]
    answer = fit(host(cell), sized_guest(2))
    assert isinstance(answer, Misfit)
    pair = answer.cells[0]
    assert (pair.code, pair.need, pair.have) == ("not_enough_pages", 2 * GIB * 256, GIB * 256)


def test_large_and_any_take_the_biggest_pages_that_fit_and_large_never_the_smallest() -> None:
    """Check H7."""
    pools = (PagePool(4, 4 * GIB * 256), PagePool(2048, 1024), PagePool(1024**2, 1))
    cell = host_cell(page_pools=pools)

    def size(memory_mib: int, wanted: int) -> int | str | None:
        answer = fit(host(cell), guest(guest_cell(memory_mib=memory_mib, page_size_kib=wanted)))
        return (
            answer.cells[0].page_size_kib if isinstance(answer, Placement) else answer.cells[0].code
        )

    assert size(GIB, -2) == 1024**2
    assert size(2 * GIB, -2) == 2048
    assert size(1025, -2) == "memory_not_whole_pages"
    assert size(1025, -3) == 4
    assert size(GIB, -1) == 4
    assert size(GIB, 2048) == 2048
    assert size(GIB, 8192) == "page_size_not_offered"
    only = host(host_cell(page_pools=(PagePool(2048, 1024),)))
    assert isinstance(fit(only, sized_guest(1, page_size_kib=-2)), Misfit)


def test_reserved_pages_are_nobodys() -> None:
    cell = host_cell(page_pools=(PagePool(1024**2, 4, used=1, reserved=2),))
    assert host_cells(fit(host(cell), sized_guest(1, page_size_kib=1024**2))) == [0]
    assert isinstance(fit(host(cell), sized_guest(2, page_size_kib=1024**2)), Misfit)


def test_cells_without_memory_or_without_cpus_are_passed_over() -> None:
    no_memory = host_cell(0, memory_mib=0)
    no_cpus = host_cell(7, cpus=())
    cells = host(no_memory, no_cpus, host_cell(9))
    assert host_cells(fit(cells, sized_guest(1))) == [9]
    answer = fit(host(no_memory, no_cpus), sized_guest(1))
    assert isinstance(answer, Misfit)
    assert {pair.host_cell: pair.code for pair in answer.cells} == {
        0: "not_enough_pages",
        7: "not_enough_dedicated_cpus",
    }


def test_a_host_with_fewer_cells_than_the_guest_is_refused_as_that() -> None:
    answer = fit(host(host_cell(0)), sized_guest(1, 1))
    assert isinstance(answer, Misfit)
    assert answer.code == "too_few_host_cells"
    assert [(pair.need, pair.have) for pair in answer.cells] == [(2, 1), (2, 1)]


def test_three_cores_on_one_node_do_not_move_to_two_nodes_of_two() -> None:
    wanted = guest(guest_cell(vcpus=3))
    assert host_cells(fit(host(host_cell(0, cpus=range(3))), wanted)) == [0]
    target = host(host_cell(0, cpus=(0, 1)), host_cell(1, cpus=(2, 3)))
    assert isinstance(fit(target, wanted), Misfit)


def test_pack_and_spread_both_fit_whenever_one_does() -> None:
    cells = host(*(host_cell(n, pinned_cpus=mask_of([n * 4]) if n % 2 else 0) for n in range(16)))
    wanted = guest(*(guest_cell(n, 4 if n < 4 else 3) for n in range(8)))
    for pack in (False, True):
        assert len(set(host_cells(fit(cells, wanted, pack=pack)))) == 8
