"""Charging placements to hosts and giving them back."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import Rejected
from models.hardware import (
    CpuMask,
    Flavor,
    GuestTopology,
    HostCell,
    HostTopology,
    Image,
    PagePool,
    PlacedCell,
    Placement,
    cpus_of,
    mask_of,
)
from models.hardware.accounting import (
    claim,
    pin,
    release,
    unpin,
    with_siblings,
    without_use,
)
from models.hardware.fitting.fit_guest import fit
from models.hardware.requirements.numa_constraints import guest_topology
from models.messages.hardware.hardware_json import (
    guest_from_json,
    host_from_row,
    placement_from_json,
    placement_to_json,
)
from tests.hardware.builders import GIB, cores, guest, guest_cell, host, host_cell, sized_guest
from tests.hardware.generator import random_case

N39 = HostCell(
    0,
    dedicated_cpus=mask_of([1, 2, 3, 4]),
    pinned_cpus=mask_of([1]),
    siblings=cores((1, 3), (2, 4)),
)


def placed(host_topology: HostTopology, wanted: GuestTopology | None = None) -> Placement:
    answer = fit(host_topology, wanted or sized_guest(1))
    assert isinstance(answer, Placement)
    return answer


def test_pinning_free_cpus_leaves_the_others_free() -> None:
    assert cpus_of(pin(N39, mask_of([2, 3])).free_cpus) == (4,)


def test_unpinning_makes_cpus_free_again() -> None:
    pinned = pin(N39, mask_of([2, 3]))
    assert cpus_of(unpin(pinned, mask_of([1, 2, 3])).free_cpus) == (1, 2, 3, 4)


def test_pinning_with_siblings_takes_the_whole_core() -> None:
    assert cpus_of(with_siblings(N39, mask_of([1]))) == (1, 3)


@pytest.mark.parametrize(
    ("change", "cpus", "code"),
    [
        (pin, [1, 4], "cpu_pinning_invalid"),
        (pin, [1, 55], "cpu_pinning_unknown"),
        (unpin, [1, 4], "cpu_unpinning_invalid"),
        (unpin, [1, 55], "cpu_unpinning_unknown"),
    ],
)
def test_a_refused_change_of_pins_says_what_is_available_and_changes_nothing(
    change: Callable[[HostCell, CpuMask], HostCell], cpus: list[int], code: str
) -> None:
    with pytest.raises(Rejected) as refusal:
        change(N39, mask_of(cpus))
    assert refusal.value.code == code
    assert refusal.value.data["requested"] == cpus
    assert refusal.value.data["available"] == [2, 3, 4]
    assert cpus_of(N39.pinned_cpus) == (1,)


def test_a_claim_charges_pins_pages_memory_and_shared_cpus() -> None:
    cell = host_cell(shared_cpus=mask_of([20, 21]))
    mixed = guest(guest_cell(cpu_policy="mixed", dedicated_vcpus=0b1, shared_vcpus=0b110))
    after = claim(host(cell), placed(host(cell), mixed)).cells[0]
    assert (after.cpu_used, after.memory_used_mib, cpus_of(after.pinned_cpus)) == (2, GIB, (0,))
    assert after.page_pools == (PagePool(4, 4 * GIB * 256, used=GIB * 256),)


def test_without_a_page_size_the_smallest_pool_is_charged_whatever_the_order() -> None:
    pools = (PagePool(1024**2, 4), PagePool(4, 4 * GIB * 256))
    cell = host(host_cell(page_pools=pools))
    after = claim(cell, placed(cell)).cells[0]
    assert [pool.used for pool in after.page_pools] == [0, GIB * 256]


def test_with_a_page_size_that_pool_is_charged() -> None:
    pools = (PagePool(1024**2, 4), PagePool(4, 4 * GIB * 256))
    cell = host(host_cell(page_pools=pools))
    after = claim(cell, placed(cell, sized_guest(1, page_size_kib=-3))).cells[0]
    assert [pool.used for pool in after.page_pools] == [1, 0]


def test_old_style_isolation_takes_the_siblings_too_and_gives_them_back() -> None:
    both = mask_of(range(4))
    cell = host(host_cell(shared_cpus=both, siblings=cores((0, 2), (1, 3))))
    wanted = guest(guest_cell(cpu_thread_policy="isolate"), emulator="isolate")
    placement = placed(cell, wanted)
    after = claim(cell, placement)
    assert cpus_of(after.cells[0].pinned_cpus) == (0, 1, 2, 3)
    assert release(after, placement) == cell


def test_giving_back_never_makes_a_usage_negative() -> None:
    """Check H15."""
    shared = PlacedCell(0, 0, 0b11, 0, 2 * GIB)
    cell = host(host_cell(cpu_used=1, memory_used_mib=GIB))
    after = release(cell, Placement((shared,))).cells[0]
    assert (after.cpu_used, after.memory_used_mib, after.page_pools[0].used) == (0, 0, 0)


def test_a_placement_on_a_cell_or_pool_that_the_host_has_not_is_refused() -> None:
    with pytest.raises(Rejected) as refusal:
        claim(host(), Placement((PlacedCell(0, 5, 0, 0, GIB),)))
    assert refusal.value.code == "host_cell_unknown"
    with pytest.raises(Rejected) as refusal:
        claim(host(), Placement((PlacedCell(0, 0, 0, 0, GIB, 2048),)))
    assert refusal.value.code == "page_pool_unknown"


def test_hardware_is_the_same_whatever_is_used_of_it() -> None:
    before = host(host_cell(0), host_cell(1))
    assert without_use(claim(before, placed(before))) == before


@given(st.integers(0, 10**9))
def test_claiming_then_giving_back_restores_the_host(seed: int) -> None:
    """Also through JSON, since that is how placements wait for their end."""
    dice = Random(seed)
    for _ in range(20):
        case = random_case(dice)
        before = host_from_row(case["host"])
        answer = fit(before, guest_from_json(case["guest"]))
        if isinstance(answer, Placement):
            after = claim(before, answer)
            assert after != before or not any(
                cell.memory_mib or cell.shared_vcpus or cell.allocated_cpus for cell in answer.cells
            )
            assert placement_from_json(placement_to_json(answer)) == answer
            assert release(after, placement_from_json(placement_to_json(answer))) == before


def test_guests_come_and_go_in_any_order_until_the_host_is_empty_again() -> None:
    dice = Random(7)
    empty = host(*(host_cell(n, cpus=range(n * 8, n * 8 + 8)) for n in range(4)))
    flavor = Flavor("f", 4, 1024, extra_specs={"hw:cpu_policy": "dedicated", "hw:numa_nodes": "2"})
    wanted = guest_topology(flavor, Image("i"))
    assert wanted is not None
    now, living = empty, []
    for _ in range(300):
        answer = fit(now, wanted, pack=dice.random() < 0.5)
        if isinstance(answer, Placement) and dice.random() < 0.6:
            now = claim(now, answer)
            living.append(answer)
        elif living:
            now = release(now, living.pop(dice.randrange(len(living))))
        taken = sum(len(cell.pinning) for answer in living for cell in answer.cells)
        assert sum(cell.pinned_cpus.bit_count() for cell in now.cells) == taken
    for answer in living:
        now = release(now, answer)
    assert now == empty
