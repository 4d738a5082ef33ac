"""The columns that filters and weighers use: plain functions of a host or a NUMA cell."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import or_

from conductor.placement.host_requirements import CAPABILITIES, gives_hardware, has_trait, is_of
from conductor.placement.resources import capacity, left_of, most_of
from conductor.scheduling.fleet.fleet_snapshot import CellColumn, HostColumn
from conductor.scheduling.request.instance_shape import Shape
from conductor.store import Host
from models.hardware import (
    ANY_PAGES,
    DEDICATED,
    DEVICE_CLASS,
    LARGE_PAGES,
    MIXED,
    SMALL_PAGES,
    HostCell,
)
from models.hardware.requirements.spec_operators import Condition
from models.units import KIB_PER_MIB


@dataclass(frozen=True, slots=True)
class CellNeeds:
    """What a guest with dedicated CPUs needs of each of so many NUMA cells, its largest at most.

    `memory_mib` is 0 where the guest has page sizes, which only the fitter counts.
    """

    cells: int
    cpus: int
    memory_mib: int


@lru_cache(maxsize=1024)
def cell_needs(shape: Shape) -> CellNeeds | None:
    """Return what the shape needs of NUMA cells, or None where it has no dedicated CPUs."""
    guest = shape.guest
    if guest is None or any(cell.cpu_policy not in (DEDICATED, MIXED) for cell in guest.cells):
        return None
    sized = any(cell.page_size_kib is not None for cell in guest.cells)
    return CellNeeds(
        len(guest.cells),
        max(cell.dedicated_vcpus.bit_count() for cell in guest.cells),
        0 if sized else max(cell.memory_mib for cell in guest.cells),
    )


@lru_cache(maxsize=256)
def left_column(resource_class: str) -> HostColumn:
    """Return the column of the free amount of a class; the same function for the same class."""

    def left(host: Host) -> int:
        return left_of(host, resource_class)

    return left


@lru_cache(maxsize=256)
def capacity_column(resource_class: str) -> HostColumn:
    """Return the column of the capacity of a class."""

    def whole(host: Host) -> int:
        inventory = host.inventory.get(resource_class)
        return 0 if inventory is None else capacity(inventory)

    return whole


@lru_cache(maxsize=256)
def most_column(resource_class: str) -> HostColumn:
    """Return the column of the most that one guest can have of a class on an empty host."""

    def most(host: Host) -> int:
        return most_of(host, resource_class)

    return most


@lru_cache(maxsize=256)
def trait_column(trait: str) -> HostColumn:
    """Return the column of hosts with a trait; the one of threads is derived from hardware too."""

    def has(host: Host) -> int:
        return has_trait(host, trait)

    return has


@lru_cache(maxsize=256)
def hardware_column(trait: str) -> HostColumn:
    """Return the column of hosts that give such virtual hardware, or have not said what."""

    def gives(host: Host) -> int:
        return gives_hardware(host, trait)

    return gives


@lru_cache(maxsize=64)
def architecture_column(trait: str) -> HostColumn:
    """Return the column of hosts of an architecture, or of an unreported one."""

    def says(host: Host) -> int:
        return is_of(host, trait)

    return says


@lru_cache(maxsize=256)
def capability_column(name: str, condition: Condition) -> HostColumn:
    """Return the column of hosts whose capability meets a condition; never an unknown one."""
    read = CAPABILITIES.get(name)

    def has(host: Host) -> int:
        return read is not None and condition.holds((read(host),))

    return has


def instances(host: Host) -> int:
    """Return how many instances a host has."""
    return host.instances


def free_devices(host: Host) -> int:
    """Return how many devices of a host are free."""
    return sum(left_of(host, name) for name in host.inventory if name.startswith(DEVICE_CLASS))


def free_cpus(cell: HostCell) -> int:
    """Return how many dedicated CPUs of the cell are free."""
    return cell.free_cpus.bit_count()


def free_memory_mib(cell: HostCell) -> int:
    """Return the MiB that a guest with dedicated CPUs can have without asking for a page size."""
    if not cell.page_pools:
        return cell.free_memory_mib
    pool = min(cell.page_pools, key=lambda pool: pool.size_kib)
    return pool.free * pool.size_kib // KIB_PER_MIB


@lru_cache(maxsize=32)
def free_pages_mib(page_size_kib: int) -> CellColumn:
    """Return the column of the MiB in the largest free pool of a size, or small, large, any pages.

    An upper bound: whether the memory is a whole number of pages is checked by the fitter.
    """

    def free(cell: HostCell) -> int:
        pools = sorted((pool.size_kib, pool.free) for pool in cell.page_pools)
        if page_size_kib == SMALL_PAGES:
            pools = pools[:1]
        elif page_size_kib == LARGE_PAGES:
            pools = pools[1:]
        elif page_size_kib != ANY_PAGES:
            pools = [pool for pool in pools if pool[0] == page_size_kib]
        return max((size * free // KIB_PER_MIB for size, free in pools), default=0)

    return free


def free_cores(cell: HostCell) -> int:
    """Return how many cores have all threads free; a CPU without siblings is a core."""
    free = cell.free_cpus
    known = reduce(or_, cell.siblings, 0)
    return sum(not core & ~free for core in cell.siblings) + (free & ~known).bit_count()


def paired_cpus(cell: HostCell) -> int:
    """Return how many free CPUs have a free sibling."""
    shared = (core & cell.free_cpus for core in cell.siblings)
    return sum(threads for core in shared if (threads := core.bit_count()) > 1)


def is_enabled(host: Host) -> int:
    """Return 1 for a host that an operator has not disabled."""
    return host.enabled


def is_forced_down(host: Host) -> int:
    """Return 1 for a host that an operator has forced down."""
    return host.forced_down


def is_degraded(host: Host) -> int:
    """Return 1 for a host whose allocations or hardware are inconsistent."""
    return host.degraded is not None
