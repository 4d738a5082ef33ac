"""The NUMA filter: which hosts may have NUMA cells for a guest, over the whole fleet at once.

A prefilter: every check is necessary, none sufficient. Hosts that pass are fitted exactly later,
one by one, in the order of their weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Final

import numpy as np
from numpy.typing import NDArray

from conductor.scheduling.fleet.filter_verdicts import Check
from conductor.scheduling.fleet.fleet_snapshot import Fleet, Mask, Numbers
from conductor.scheduling.fleet.host_columns import (
    free_cores,
    free_cpus,
    free_memory_mib,
    free_pages_mib,
    paired_cpus,
)
from conductor.scheduling.request.request_spec import RequestSpec
from models.hardware import (
    ANY_PAGES,
    DEDICATED,
    ISOLATE,
    LARGE_PAGES,
    MIXED,
    REQUIRE,
    SMALL_PAGES,
    GuestCell,
)
from models.units import KIB_PER_MIB, MIB_PER_GIB


@dataclass(frozen=True, slots=True)
class _Resource:
    """A resource of NUMA cells: the check's code, its name in words, and its unit."""

    code: str
    what: str
    unit: str = ""


_CPUS: Final = _Resource("numa_dedicated_cpus", "free dedicated CPUs")
_CORES: Final = _Resource("numa_free_cores", "wholly free cores")
_PAIRED: Final = _Resource("numa_paired_cpus", "free dedicated CPUs with a free sibling")
_MEMORY: Final = _Resource("numa_memory", "free memory", "MiB")
_PAGES: Final = {
    SMALL_PAGES: "free small pages",
    LARGE_PAGES: "free large pages",
    ANY_PAGES: "free pages of one size",
}


def has_numa_cells(spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """Enough NUMA cells with the dedicated CPUs, cores and memory that the guest's cells need."""
    guest = spec.shape.guest
    if guest is None:
        return
    pinned = all(cell.cpu_policy in (DEDICATED, MIXED) for cell in guest.cells)
    if pinned:
        yield from _has_cpus(guest.cells, fleet)
    sizes = {cell.page_size_kib for cell in guest.cells}
    size = next(iter(sizes))
    if len(sizes) > 1 or (size is None and not pinned):
        return  # several sizes are left to the fitter; without one, shared guests over-commit
    resource = _MEMORY if size is None else _pages(size)
    memory = fleet.cells(free_memory_mib if size is None else free_pages_mib(size))
    needs = [cell.memory_mib for cell in guest.cells]
    yield _in_cells(memory, needs, resource)
    if pinned:
        cpus = fleet.cells(free_cpus)
        both = (cpus >= min(map(_dedicated, guest.cells))) & (memory >= min(needs))
        what = _cells_text(f"both {_CPUS.what} and {resource.what}", len(guest.cells))
        passed = _how_many(both) >= len(guest.cells)
        yield Check("numa_cells_unbalanced", (f"lacks {what}", f"lack {what}"), passed)


def _has_cpus(cells: Sequence[GuestCell], fleet: Fleet) -> Iterator[Check]:
    """Yield the checks on CPUs, and on cores where the thread policy needs them."""
    needs = [_dedicated(cell) for cell in cells]
    yield _in_cells(fleet.cells(free_cpus), needs, _CPUS)
    policies = {cell.cpu_thread_policy for cell in cells}
    if policies == {ISOLATE}:
        yield _in_cells(fleet.cells(free_cores), needs, _CORES)
    elif policies == {REQUIRE}:
        yield _in_cells(fleet.cells(paired_cpus), needs, _PAIRED)


def _in_cells(values: Numbers, needs: list[int], resource: _Resource) -> Check:
    """Return whether each host has a NUMA cell of its own for every need, looking at it alone.

    The n greatest needs find n cells if and only if n cells have at least the least of them.
    """
    passed = np.ones(values.shape[1], np.bool_)
    ordered = sorted(needs, reverse=True)
    for rank, need in enumerate(ordered, start=1):
        if rank < len(needs) and ordered[rank] == need:
            continue
        passed &= _how_many(values >= need) >= rank
    text = _cells_text(resource.what, len(needs))
    have = partial(_greatest, values, len(needs))
    lacks = (f"lacks {text}", f"lack {text}")
    return Check(resource.code, lacks, passed, min(needs), have, resource.unit)


def _how_many(cells: Mask) -> NDArray[np.int8]:
    """Return how many NUMA cells of each host: few, so adding them up row by row is fastest."""
    return reduce(np.add, cells.astype(np.int8))


def _greatest(values: Numbers, rank: int, rows: Numbers) -> Numbers:
    """Return the rank-th greatest of these hosts' NUMA cells, 0 where there are not so many."""
    if len(values) < rank:
        return np.zeros(len(rows), np.int64)
    some = values[:, rows]
    if rank == 1:
        best = reduce(np.maximum, some)
    elif rank == len(values):
        best = reduce(np.minimum, some)
    else:
        best = np.sort(some, axis=0)[-rank]
    return np.asarray(np.maximum(best, 0))


def _pages(size_kib: int) -> _Resource:
    for unit, kib in (("GiB", KIB_PER_MIB * MIB_PER_GIB), ("MiB", KIB_PER_MIB), ("KiB", 1)):
        if size_kib > 0 and size_kib % kib == 0:
            return _Resource("numa_pages", f"free pages of {size_kib // kib} {unit}", "MiB")
    return _Resource("numa_pages", _PAGES[size_kib], "MiB")


def _cells_text(what: str, cells: int) -> str:
    return f"{what} in {'one NUMA cell' if cells == 1 else f'each of {cells} NUMA cells'}"


def _dedicated(cell: GuestCell) -> int:
    return cell.dedicated_vcpus.bit_count()
