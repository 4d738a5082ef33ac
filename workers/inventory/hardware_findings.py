"""What a description says of NUMA cells, made into host cells that add up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from models.errors import Rejected
from models.hardware import CpuMask, HostCell, PagePool, format_cpu_list
from models.units import KIB_PER_MIB

SMALL_PAGE_KIB = 4


@dataclass(frozen=True, slots=True)
class CpuSets:
    """Which CPUs guests may use, shared or dedicated; with neither given, all are shared.

    As in the field: with one set given the other is empty, and what is in neither is nobody's.
    """

    shared: CpuMask | None = None
    dedicated: CpuMask | None = None

    def __post_init__(self) -> None:
        both = (self.shared or 0) & (self.dedicated or 0)
        if both:
            message = f"CPU {format_cpu_list(both)} is in the shared and the dedicated set"
            raise Rejected("cpu_in_both_sets", message, key="dedicated")

    def refuse_unknown(self, online: CpuMask) -> None:
        """Raise `Rejected` (`cpu_unknown`) when a set names a CPU that the host does not have."""
        unknown = ((self.shared or 0) | (self.dedicated or 0)) & ~online
        if unknown:
            message = f"CPU {format_cpu_list(unknown)} is in a CPU set, but the host has none such"
            raise Rejected("cpu_unknown", message)

    def split(self, cpus: CpuMask) -> tuple[CpuMask, CpuMask]:
        """Return the shared and the dedicated CPUs among these."""
        if self.shared is None and self.dedicated is None:
            return cpus, 0
        return cpus & (self.shared or 0), cpus & (self.dedicated or 0)


@dataclass(frozen=True, slots=True)
class CellReport:
    """One NUMA cell as described: online CPUs and cores, memory, and its page pools.

    `base_page_kib` is the size of the host's ordinary pages. Without a pool of them they are what
    the larger ones leave of the memory.
    """

    id: int
    cpus: CpuMask
    cores: frozenset[CpuMask]
    sockets: frozenset[int]
    memory_kib: int
    pools: tuple[PagePool, ...] = ()
    base_page_kib: int = SMALL_PAGE_KIB


def host_cell(report: CellReport, sets: CpuSets) -> HostCell:
    """Return the host cell that a report describes: whole MiB, and pools that add up (I4).

    Raises `Rejected` (`pages_exceed_memory`) when the large pages are more than the memory.
    """
    shared, dedicated = sets.split(report.cpus)
    pools = report.pools
    base_kib = report.base_page_kib
    if all(pool.size_kib > base_kib for pool in pools):
        # Nobody counted the ordinary pages: as many as the cut below leaves.
        pools = (PagePool(base_kib, report.memory_kib // base_kib), *pools)
    return HostCell(
        id=report.id,
        socket=min(report.sockets) if len(report.sockets) == 1 else None,
        shared_cpus=shared,
        dedicated_cpus=dedicated,
        memory_mib=report.memory_kib // KIB_PER_MIB,
        siblings=tuple(sorted(report.cores, key=lambda core: core & -core)),
        page_pools=adding_up(report.id, report.memory_kib, pools),
    )


def adding_up(cell_id: int, memory_kib: int, pools: Iterable[PagePool]) -> tuple[PagePool, ...]:
    """Return page pools, by size, that are no more than the whole MiB of a memory size.

    The smallest are the host's ordinary pages: 4 KiB or, on some Arm and POWER machines, 16 or 64,
    which elsewhere on Arm is a size of huge pages; from 1 MiB on they are huge ones anywhere.
    Ordinary pages that are over-reported, as some sources do by counting large ones twice, are
    cut to what the large ones leave.
    """
    by_size = sorted(pools, key=lambda pool: pool.size_kib)
    has_base = bool(by_size) and by_size[0].size_kib < KIB_PER_MIB
    large = by_size[1:] if has_base else by_size
    large_kib = sum(pool.size_kib * pool.total for pool in large)
    if large_kib > memory_kib:
        message = f"NUMA cell {cell_id} has {large_kib} KiB of large pages in {memory_kib} KiB"
        raise Rejected("pages_exceed_memory", message, key="mempages", cell=cell_id)
    free_kib = memory_kib // KIB_PER_MIB * KIB_PER_MIB - large_kib
    small = []
    for pool in by_size[:has_base]:
        total = min(pool.total, max(0, free_kib) // pool.size_kib)
        free_kib -= total * pool.size_kib
        small.append(PagePool(pool.size_kib, total, pool.used, pool.reserved))
    return (*small, *large)


def over_reported_kib(memory_kib: int, pools: Iterable[PagePool]) -> int:
    """Return by how much page pools exceed the memory they are in, 0 where they fit."""
    return max(0, sum(pool.size_kib * pool.total for pool in pools) - memory_kib)
