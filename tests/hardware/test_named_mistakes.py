"""The mistakes a fitter of this kind is known to make, each by its name."""

from __future__ import annotations

from typing import Any

import pytest

from models.errors import Rejected
from models.hardware import Limits, Misfit, PagePool, Placement, mask_of
from models.hardware.accounting import claim
from models.hardware.fitting.fit_guest import fit
from tests.hardware.builders import (
    GIB,
    cores,
    guest,
    guest_cell,
    host,
    host_cell,
    host_cells,
    pinned_cpus,
    sized_guest,
    sized_host,
    topology_for,
)


def test_three_equal_cells_of_1_gib_do_not_take_a_guest_of_1_1_and_2_gib() -> None:
    answer = fit(sized_host(1, 1, 1), sized_guest(1, 1, 2))
    assert isinstance(answer, Misfit)
    assert {pair.code for pair in answer.cells if pair.guest_cell == 2} == {"not_enough_pages"}


def test_a_host_of_2_1_1_gib_takes_a_guest_of_1_1_2_with_every_vcpu_pinned() -> None:
    answer = fit(sized_host(2, 1, 1), sized_guest(1, 1, 2))
    assert host_cells(answer) == [1, 2, 0]
    assert pinned_cpus(answer) == [0, 4, 8]


def test_a_host_of_1_2_1_gib_takes_a_guest_of_1_and_2() -> None:
    assert host_cells(fit(sized_host(1, 2, 1), sized_guest(1, 2))) == [0, 1]


def test_pages_of_any_size_are_chosen_for_the_cell_that_is_taken_in_the_end() -> None:
    """The first cell tried has 1 GiB pages but not the network; the other only 4 KiB pages."""
    small, big = PagePool(4, 4 * GIB * 256), PagePool(1024**2, 4)
    with_pages = host_cell(0, page_pools=(small, big))
    with_network = host_cell(1, page_pools=(small,), physnets=frozenset({"red"}))
    limits = Limits(physnets=frozenset({"red"}))
    answer = fit(host(with_pages, with_network), sized_guest(1, page_size_kib=-3), limits)
    assert isinstance(answer, Placement)
    assert (answer.cells[0].host_cell, answer.cells[0].page_size_kib) == (1, 4)


def test_an_attempt_that_failed_on_one_host_changes_nothing_on_the_next() -> None:
    wanted = sized_guest(1, 2, page_size_kib=-3)
    fresh = fit(sized_host(1, 2, 1), wanted)
    assert isinstance(fit(sized_host(1, 1), wanted), Misfit)
    assert fit(sized_host(1, 2, 1), wanted) == fresh
    assert wanted == sized_guest(1, 2, page_size_kib=-3)


def test_require_takes_cores_of_four_and_two_free_threads_for_six_vcpus() -> None:
    cell = host_cell(
        cpus=range(8), siblings=cores(range(4), range(4, 8)), pinned_cpus=mask_of([4, 6])
    )
    answer = fit(host(cell), guest(guest_cell(vcpus=6, cpu_thread_policy="require")))
    assert pinned_cpus(answer) == [0, 1, 2, 3, 5, 7]


@pytest.mark.parametrize("thread_policy", ["isolate", "require", "prefer", None])
def test_a_mixed_guests_cell_without_dedicated_vcpus_needs_none(thread_policy: str | None) -> None:
    shared = mask_of(range(8, 12))
    cells = [
        host_cell(n, cpus=range(n * 4, n * 4 + 4), shared_cpus=shared << n * 4) for n in range(2)
    ]
    if thread_policy == "require":
        siblings = [cores((0, 1), (2, 3)), cores((4, 5), (6, 7))]
        cells = [host_cell(n, siblings=siblings[n], shared_cpus=shared << n * 4) for n in range(2)]
    mixed: dict[str, Any] = {"cpu_policy": "mixed", "cpu_thread_policy": thread_policy}
    wanted = guest(
        guest_cell(0, dedicated_vcpus=0b1, shared_vcpus=0b10, **mixed),
        guest_cell(1, dedicated_vcpus=0, shared_vcpus=0b1100, **mixed),
    )
    answer = fit(host(*cells), wanted)
    assert isinstance(answer, Placement)
    assert [len(cell.pinning) for cell in answer.cells] == [1, 0]


def test_a_cell_with_nothing_to_pin_binds_no_thread_policy_on_a_host_that_could_not_keep_it() -> (
    None
):
    """Siblings cannot be blocked here, and need not be: only the other cell pins."""
    plain = host_cell(0)
    threaded = host_cell(1, siblings=cores((4, 5), (6, 7)), shared_cpus=mask_of([20, 21]))
    mixed: dict[str, Any] = {"cpu_policy": "mixed", "cpu_thread_policy": "isolate"}
    wanted = guest(
        guest_cell(0, dedicated_vcpus=0b1, shared_vcpus=0, **mixed),
        guest_cell(1, dedicated_vcpus=0, shared_vcpus=0b10, **mixed),
    )
    assert host_cells(fit(host(plain, threaded), wanted)) == [0, 1]


def test_isolated_emulator_threads_take_no_partly_used_core_under_isolate() -> None:
    old_style = mask_of(range(6))
    half_used = host_cell(
        cpus=range(6),
        shared_cpus=old_style,
        siblings=cores((0, 1), (2, 3), (4, 5)),
        pinned_cpus=mask_of([0]),
    )
    one = guest(guest_cell(cpu_thread_policy="isolate"), emulator="isolate")
    answer = fit(host(half_used), one)
    assert isinstance(answer, Placement)
    assert answer.cells[0].allocated_cpus == mask_of([2, 3, 4, 5])
    two = guest(guest_cell(vcpus=2, cpu_thread_policy="isolate"), emulator="isolate")
    refusal = fit(host(half_used), two)
    assert isinstance(refusal, Misfit)
    assert refusal.cells[0].code == "no_core_for_emulator_threads"


def test_a_host_without_page_pools_is_judged_by_its_memory() -> None:
    bare = host_cell(page_pools=(), memory_used_mib=3 * GIB, shared_cpus=mask_of([30]))
    assert pinned_cpus(fit(host(bare), sized_guest(1))) == [0]
    assert isinstance(fit(host(bare), sized_guest(2)), Misfit)
    shared = guest_cell(cpu_policy=None, dedicated_vcpus=0, shared_vcpus=1, memory_mib=4 * GIB)
    placement = fit(host(bare), guest(shared))
    assert host_cells(placement) == [0]
    assert isinstance(placement, Placement)
    assert claim(host(bare), placement).cells[0].memory_used_mib == 7 * GIB


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hw:numa_mem.1", "-1024"),
        ("hw:numa_mem.1", "much"),
        ("hw:numa_mem.0", "1.5"),
        ("hw:mem_page_size", "-2048"),
        ("hw:mem_page_size", "huge"),
        ("hw:mem_page_size", "0"),
        ("hw:mem_page_size", "1B"),
        ("hw:mem_page_size", "9" * 5000),
        ("hw:numa_nodes", "9" * 5000),
    ],
)
def test_negative_and_non_numeric_sizes_are_refused_by_their_key(key: str, value: str) -> None:
    specs = {
        "hw:numa_nodes": "2",
        "hw:numa_cpus.0": "0,1",
        "hw:numa_cpus.1": "2,3",
        "hw:numa_mem.0": "2048",
        "hw:numa_mem.1": "2048",
    }
    with pytest.raises(Rejected) as refusal:
        topology_for({**specs, key: value})
    assert refusal.value.key == key


def test_a_resource_class_that_only_begins_like_pcpu_is_not_pcpu() -> None:
    assert (
        topology_for({"resources:PCPU_EXTRA": "4", "trait:HW_CPU_HYPERTHREADING_X": "required"})
        is None
    )
    assert topology_for({"resources:PCPU": "4"}) is not None


def test_sixteen_cells_of_which_only_seven_fit_are_refused_without_permutations() -> None:
    """8 of 16 are 518 million permutations; the test's own timeout is the check."""
    cells = [host_cell(n) for n in range(16)]
    full = [
        host_cell(cell.id, pinned_cpus=cell.dedicated_cpus) if cell.id >= 7 else cell
        for cell in cells
    ]
    answer = fit(host(*full), guest(*(guest_cell(n) for n in range(8))))
    assert isinstance(answer, Misfit)
    assert (answer.code, len(answer.cells)) == ("host_cells_contended", 128)
