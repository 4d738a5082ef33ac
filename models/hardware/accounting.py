"""Claim a placement on a host, or release it; the host passed in is never changed.

Releasing exactly what was claimed restores the host exactly. A refused call raises and
leaves no trace, since every answer is a new value.
"""

from collections.abc import Callable
from typing import TypeAlias

from models.errors import Rejected
from models.hardware import (
    CpuMask,
    HostCell,
    HostTopology,
    PagePool,
    PciPool,
    PlacedCell,
    PlacedDevices,
    Placement,
    cpus_of,
)
from models.units import KIB_PER_MIB

_Change: TypeAlias = Callable[[HostCell, PlacedCell], HostCell]


def claim(host: HostTopology, placement: Placement) -> HostTopology:
    """Return the host with the placement's CPUs, memory, pages and devices in use.

    Raises `Rejected`: `cpu_pinning_unknown` and `cpu_pinning_invalid` as `pin` does,
    `host_cell_unknown`, `page_pool_unknown`, `device_unknown`, `devices_taken`. Capacity is not
    checked: that is the fitter's part.
    """
    return _changed(host, placement, _charged, +1)


def release(host: HostTopology, placement: Placement) -> HostTopology:
    """Return the host without the placement's use; no usage falls below zero.

    Raises `Rejected`: `cpu_unpinning_unknown` and `cpu_unpinning_invalid` as `unpin` does,
    `host_cell_unknown`, `page_pool_unknown`, `device_unknown`, `devices_not_taken`.
    """
    return _changed(host, placement, _discharged, -1)


def pin(cell: HostCell, cpus: CpuMask) -> HostCell:
    """Return the cell with these dedicated CPUs taken.

    Raises `Rejected`: `cpu_pinning_unknown` for a CPU that is not among the cell's dedicated
    ones, `cpu_pinning_invalid` for one already taken; the data lists requested and available.
    """
    return _with_use(cell, cell.cpu_used, cell.memory_used_mib, _pinned_with(cell, cpus))


def unpin(cell: HostCell, cpus: CpuMask) -> HostCell:
    """Return the cell with these dedicated CPUs free again.

    Raises `Rejected`: `cpu_unpinning_unknown` for a CPU that is not among the cell's dedicated
    ones, `cpu_unpinning_invalid` for one that nobody had taken.
    """
    return _with_use(cell, cell.cpu_used, cell.memory_used_mib, _pinned_without(cell, cpus))


def with_siblings(cell: HostCell, cpus: CpuMask) -> CpuMask:
    """Return these CPUs and every thread that shares a core with one of them."""
    for core in cell.siblings:
        if core & cpus:
            cpus |= core
    return cpus


def without_use(host: HostTopology) -> HostTopology:
    """Return the host's hardware as if it had no guests."""
    devices = tuple(_with_count_used(pool, 0) for pool in host.pci_pools)
    return HostTopology(tuple(_unused(cell) for cell in host.cells), devices)


def _changed(host: HostTopology, placement: Placement, change: _Change, sign: int) -> HostTopology:
    cells = list(host.cells)
    positions = {cell.id: position for position, cell in enumerate(cells)}
    for placed in placement.cells:
        position = positions.get(placed.host_cell)
        if position is None:
            raise Rejected(
                "host_cell_unknown",
                f"host_cell is {placed.host_cell}: the host has no NUMA cell of that id",
                key="host_cell",
                host_cell=placed.host_cell,
            )
        cells[position] = change(cells[position], placed)
    pools = host.pci_pools
    for devices in placement.devices:
        pools = _devices_after(pools, devices, sign)
    return HostTopology(tuple(cells), pools)


def _devices_after(
    pools: tuple[PciPool, ...], devices: PlacedDevices, sign: int
) -> tuple[PciPool, ...]:
    after = list(pools)
    left = devices.count
    known = False
    for at, pool in enumerate(pools):
        if pool.kind == devices.kind:
            known = True
            some = min(left, pool.free if sign > 0 else pool.used)
            after[at] = _with_count_used(pool, pool.used + sign * some)
            left -= some
    if not left:
        return tuple(after)
    what = f"{devices.vendor_id}:{devices.product_id} {dict(devices.tags)}".strip(" {}")
    where = "of no NUMA node" if devices.numa_node is None else f"of node {devices.numa_node}"
    if not known:
        code, rule = "device_unknown", "the host has no such devices"
    elif sign > 0:
        code, rule = "devices_taken", f"{left} of {devices.count} are not free"
    else:
        code, rule = "devices_not_taken", f"{left} of {devices.count} are not taken"
    message = f"devices {what} {where}: {rule}"
    raise Rejected(code, message, key="devices", need=devices.count, have=devices.count - left)


def _with_count_used(pool: PciPool, used: int) -> PciPool:
    return PciPool(pool.numa_node, pool.count, pool.vendor_id, pool.product_id, pool.tags, used)


def _pinned_with(cell: HostCell, cpus: CpuMask) -> CpuMask:
    if cpus & ~cell.dedicated_cpus:
        raise _refused("cpu_pinning_unknown", "are not all dedicated CPUs of it", cell, cpus)
    if cpus & cell.pinned_cpus:
        raise _refused("cpu_pinning_invalid", "are not all free", cell, cpus)
    return cell.pinned_cpus | cpus


def _pinned_without(cell: HostCell, cpus: CpuMask) -> CpuMask:
    if cpus & ~cell.dedicated_cpus:
        raise _refused("cpu_unpinning_unknown", "are not all dedicated CPUs of it", cell, cpus)
    if cpus & ~cell.pinned_cpus:
        raise _refused("cpu_unpinning_invalid", "are not all taken", cell, cpus)
    return cell.pinned_cpus & ~cpus


def _charged(cell: HostCell, placed: PlacedCell) -> HostCell:
    return _with_use(
        cell,
        cell.cpu_used + placed.shared_vcpus.bit_count(),
        cell.memory_used_mib + placed.memory_mib,
        _pinned_with(cell, placed.allocated_cpus),
        _pools_after(cell, placed, +1),
    )


def _discharged(cell: HostCell, placed: PlacedCell) -> HostCell:
    return _with_use(
        cell,
        max(0, cell.cpu_used - placed.shared_vcpus.bit_count()),
        max(0, cell.memory_used_mib - placed.memory_mib),
        _pinned_without(cell, placed.allocated_cpus),
        _pools_after(cell, placed, -1),
    )


def _pools_after(cell: HostCell, placed: PlacedCell, sign: int) -> tuple[PagePool, ...]:
    sizes = [pool.size_kib for pool in cell.page_pools]
    if not sizes:
        return ()
    size_kib = placed.page_size_kib or min(sizes)
    if size_kib not in sizes:
        raise Rejected(
            "page_pool_unknown",
            f"pagesize is {size_kib}: host cell {cell.id} has no pages of that size in KiB",
            key="pagesize",
            host_cell=cell.id,
        )
    at = sizes.index(size_kib)
    pool = cell.page_pools[at]
    # Rounded up, so that memory which is no whole number of pages still has pages to sit in.
    pages = sign * -(-placed.memory_mib * KIB_PER_MIB // size_kib)
    charged = PagePool(size_kib, pool.total, max(0, pool.used + pages), pool.reserved)
    return (*cell.page_pools[:at], charged, *cell.page_pools[at + 1 :])


def _with_use(
    cell: HostCell,
    cpu_used: int,
    memory_used_mib: int,
    pinned_cpus: CpuMask,
    page_pools: tuple[PagePool, ...] | None = None,
) -> HostCell:
    # Spelled out, since dataclasses.replace costs five times as much on this hot path.
    return HostCell(
        cell.id,
        cell.socket,
        cell.shared_cpus,
        cell.dedicated_cpus,
        cell.memory_mib,
        cell.siblings,
        cell.page_pools if page_pools is None else page_pools,
        cpu_used,
        memory_used_mib,
        pinned_cpus,
        cell.physnets,
        cell.tunneled,
    )


def _unused(cell: HostCell) -> HostCell:
    pools = tuple(PagePool(pool.size_kib, pool.total, 0, pool.reserved) for pool in cell.page_pools)
    return _with_use(cell, 0, 0, 0, pools)


def _refused(code: str, rule: str, cell: HostCell, cpus: CpuMask) -> Rejected:
    requested = list(cpus_of(cpus))
    return Rejected(
        code,
        f"CPUs {requested} of host cell {cell.id} {rule}",
        key="cpu_pinning",
        host_cell=cell.id,
        requested=requested,
        available=list(cpus_of(cell.free_cpus)),
    )
