"""The straightforward way to fit a guest: try every permutation of host cells, as it reads.

The yardstick of the fitter's benchmark. Right for pinned guests without thread policies, and
as slow as the idea: n!/(n-k)! permutations where the answer is no.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from models.hardware import (
    GuestCell,
    GuestTopology,
    HostCell,
    HostTopology,
    Limits,
    PciRequest,
    cpus_of,
)

Pins = dict[int, int]


def permuting_fit(
    host: HostTopology,
    guest: GuestTopology,
    limits: Limits | None = None,
    requests: Sequence[PciRequest] = (),
) -> list[tuple[int, Pins]] | None:
    """Return (host cell, pins) of each guest cell in the first permutation that will do."""
    for cells in permutations(_in_order(host, guest), len(guest.cells)):
        placed = []
        for cell, wanted in zip(cells, guest.cells, strict=True):
            pins = _pins(cell, wanted)
            if pins is None:
                break
            placed.append((cell.id, pins))
        else:
            chosen = {cell.id for cell in cells}
            if _networks_near(host, chosen, limits) and _devices_near(host, chosen, requests):
                return placed
    return None


def _in_order(host: HostTopology, guest: GuestTopology) -> list[HostCell]:
    if len(host.cells) == len(guest.cells):
        return list(host.cells)
    return sorted(host.cells, key=lambda cell: (-len(_free(cell)), -cell.free_memory_mib))


def _free(cell: HostCell) -> set[int]:
    return set(cpus_of(cell.dedicated_cpus)) - set(cpus_of(cell.pinned_cpus))


def _pins(cell: HostCell, wanted: GuestCell) -> Pins | None:
    """Return a host CPU for each vCPU, siblings together, or None."""
    pool = min(cell.page_pools, key=lambda page_pool: page_pool.size_kib)
    if wanted.memory_mib * 1024 > pool.free * pool.size_kib:
        return None
    free = _free(cell)
    cores = [[cpu for cpu in cpus_of(core) if cpu in free] for core in cell.siblings]
    ordered = [cpu for core in sorted(cores, key=len, reverse=True) for cpu in core]
    vcpus = cpus_of(wanted.dedicated_vcpus)
    return None if len(vcpus) > len(ordered) else dict(zip(vcpus, ordered, strict=False))


def _networks_near(host: HostTopology, chosen: set[int], limits: Limits | None) -> bool:
    for physnet in limits.physnets if limits else ():
        local = {cell.id for cell in host.cells if physnet in cell.physnets}
        if local and not local & chosen:
            return False
    return True


def _devices_near(host: HostTopology, chosen: set[int], requests: Sequence[PciRequest]) -> bool:
    """Say whether each request finds its devices on a chosen cell, taking pools as they come."""
    left = [pool.count for pool in host.pci_pools]
    for request in requests:
        missing = request.count
        for number, pool in enumerate(host.pci_pools):
            offered = {"product_id": pool.product_id, "vendor_id": pool.vendor_id}
            if pool.numa_node in chosen and any(s.items() <= offered.items() for s in request.spec):
                taken = min(missing, left[number])
                left[number] -= taken
                missing -= taken
        if missing:
            return False
    return True
