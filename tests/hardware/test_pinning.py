"""Which CPUs guests get under each thread policy."""

from __future__ import annotations

from typing import Any

import pytest

from models.hardware import HostCell, Misfit, Placement, cpus_of, mask_of
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
)


def threaded(threads: int, number_of_cores: int = 4, **wanted: Any) -> HostCell:
    """Return a cell whose core c has the CPUs c, c + cores, c + twice cores, and so on."""
    count = threads * number_of_cores
    siblings = cores(*(range(core, count, number_of_cores) for core in range(number_of_cores)))
    return host_cell(cpus=range(count), siblings=siblings, memory_mib=16 * GIB, **wanted)


def ask(cell: HostCell, vcpus: int, policy: str | None, emulator: str | None = None) -> object:
    return fit(
        host(cell), guest(guest_cell(vcpus=vcpus, cpu_thread_policy=policy), emulator=emulator)
    )


def refusal(cell: HostCell, vcpus: int, policy: str | None, emulator: str | None = None) -> str:
    answer = ask(cell, vcpus, policy, emulator)
    assert isinstance(answer, Misfit)
    return answer.cells[0].code


@pytest.mark.parametrize("policy", [None, "prefer", "require"])
@pytest.mark.parametrize("threads", [2, 4, 8])
def test_siblings_are_kept_together_where_possible(policy: str | None, threads: int) -> None:
    cell = threaded(threads)
    assert pinned_cpus(ask(cell, threads, policy)) == list(range(0, 4 * threads, 4))


def test_vcpus_next_to_each_other_share_a_core() -> None:
    answer = ask(threaded(2), 4, None)
    assert isinstance(answer, Placement)
    assert answer.cells[0].pinning == ((0, 0), (1, 4), (2, 1), (3, 5))


def test_an_odd_vcpu_takes_a_thread_whose_sibling_is_gone_already() -> None:
    cell = threaded(2, pinned_cpus=mask_of([4]))
    assert pinned_cpus(ask(cell, 1, "prefer")) == [0]
    assert pinned_cpus(ask(cell, 3, "prefer")) == [0, 1, 5]


def test_five_vcpus_on_4_way_cores_leave_none_alone() -> None:
    assert pinned_cpus(ask(threaded(4, 2), 5, None)) == [0, 1, 2, 3, 4]


def test_prefer_takes_lone_threads_where_require_does_not() -> None:
    cell = threaded(2, pinned_cpus=mask_of([0, 1, 2, 3]))
    assert pinned_cpus(ask(cell, 2, "prefer")) == [4, 5]
    assert refusal(cell, 2, "require") == "not_enough_sibling_threads"


def test_require_leaves_at_most_one_vcpu_alone_on_a_core() -> None:
    cell = threaded(2, pinned_cpus=mask_of([3]))
    assert pinned_cpus(ask(cell, 5, "require")) == [0, 1, 2, 4, 5]
    assert refusal(cell, 7, "require") == "not_enough_sibling_threads"


def test_require_needs_threads_at_all() -> None:
    assert refusal(threaded(1), 1, "require") == "no_sibling_threads"


def test_isolate_takes_a_core_for_each_vcpu_and_blocks_its_siblings_in_the_old_style() -> None:
    """Check H11."""
    cell = threaded(2, shared_cpus=mask_of(range(8)))
    answer = ask(cell, 2, "isolate")
    assert isinstance(answer, Placement)
    assert pinned_cpus(answer) == [0, 1]
    assert cpus_of(answer.cells[0].blocked_cpus) == (4, 5)
    assert refusal(cell, 5, "isolate") == "not_enough_free_cores"


def test_isolate_fits_no_smt_cell_whose_shared_and_dedicated_cpus_differ() -> None:
    """Check H11."""
    assert refusal(threaded(2), 1, "isolate") == "siblings_not_blockable"
    assert pinned_cpus(ask(threaded(1), 2, "isolate")) == [0, 1]


def test_isolate_skips_cores_that_are_narrower_or_partly_used() -> None:
    siblings = cores((0, 1), (2, 3), (4,))
    every = mask_of(range(5))
    cell = host_cell(cpus=range(5), siblings=siblings, shared_cpus=every, pinned_cpus=mask_of([0]))
    assert pinned_cpus(ask(cell, 1, "isolate")) == [2]
    answer = ask(cell, 1, "isolate", "isolate")
    assert isinstance(answer, Placement)
    assert cpus_of(answer.cells[0].reserved_cpus) == (4,)


def test_isolated_emulator_threads_take_one_more_cpu_beside_guest_cell_0() -> None:
    cell = threaded(2, 2)
    answer = ask(cell, 3, None, "isolate")
    assert isinstance(answer, Placement)
    taken = {*pinned_cpus(answer), *cpus_of(answer.cells[0].reserved_cpus)}
    assert taken == {0, 1, 2, 3}
    assert refusal(cell, 4, None, "isolate") == "not_enough_dedicated_cpus"
    wanted = guest(guest_cell(0, 2), guest_cell(1, 2), emulator="isolate")
    narrow = host_cell(0, cpus=(0, 1))
    wide = host_cell(1, cpus=(2, 3, 4))
    assert host_cells(fit(host(narrow, wide), wanted)) == [1, 0]


def test_emulator_threads_that_share_take_no_cpu() -> None:
    answer = ask(threaded(2, 2), 4, None, "share")
    assert isinstance(answer, Placement)
    assert answer.cells[0].reserved_cpus == 0


def test_cpus_of_unknown_siblings_are_cores_of_their_own() -> None:
    bare = host_cell(siblings=())
    assert pinned_cpus(ask(bare, 4, "prefer")) == [0, 1, 2, 3]
    assert pinned_cpus(ask(bare, 4, "isolate")) == [0, 1, 2, 3]
    assert refusal(bare, 2, "require") == "no_sibling_threads"
