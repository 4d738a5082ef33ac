"""The columns that filters and weighers share: plain functions of a host or a NUMA cell."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from conductor.placement.resources import capacity, left_of, most_of
from conductor.scheduling.demand import Shape
from conductor.scheduling.fleet import HostColumn
from conductor.store.records import Host
from models.hardware.guest import DEDICATED, MIXED
from models.hardware.topology import HostCell
from models.units import KIB_PER_MIB


@dataclass(frozen=True, slots=True)
class CellNeeds:
    """What a guest with dedicated CPUs needs of each of so many NUMA cells, its largest at most.

    `memory_mib` is 0 where the guest names page sizes: those are the fitter's to count.
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
    """Return the column of what is left of a class; the same function for the same class."""

    def left(host: Host) -> int:
        return left_of(host, resource_class)

    return left


@lru_cache(maxsize=256)
def capacity_column(resource_class: str) -> HostColumn:
    """Return the column of what can be claimed of a class in all."""

    def whole(host: Host) -> int:
        inventory = host.inventory.get(resource_class)
        return 0 if inventory is None else capacity(inventory)

    return whole


@lru_cache(maxsize=256)
def most_column(resource_class: str) -> HostColumn:
    """Return the column of what one guest can have of a class, were the host empty."""

    def most(host: Host) -> int:
        return most_of(host, resource_class)

    return most


def free_cpus(cell: HostCell) -> int:
    """Return how many dedicated CPUs of the cell nobody has taken."""
    return cell.free_cpus.bit_count()


def free_memory_mib(cell: HostCell) -> int:
    """Return the MiB that a guest with dedicated CPUs can have without asking for a page size."""
    if not cell.page_pools:
        return cell.free_memory_mib
    pool = min(cell.page_pools, key=lambda pool: pool.size_kib)
    return pool.free * pool.size_kib // KIB_PER_MIB


def is_enabled(host: Host) -> int:
    """Return 1 for a host that an operator has not disabled."""
    return host.enabled


def is_forced_down(host: Host) -> int:
    """Return 1 for a host that an operator has declared dead."""
    return host.forced_down


def is_degraded(host: Host) -> int:
    """Return 1 for a host whose accounts or hardware cannot be believed."""
    return host.degraded is not None
