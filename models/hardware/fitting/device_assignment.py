"""Which devices of a host a guest gets, once its NUMA cells are chosen.

The choice of cells has made sure that there are enough (`affinity`). The nearest are used
first: those of a chosen cell, of its socket, of no known place, then the others.
"""

from collections.abc import Sequence

from models.hardware import (
    HostCell,
    HostTopology,
    Misfit,
    PciPool,
    PciRequest,
    PlacedDevices,
    Placement,
)
from models.hardware.fitting.affinity import DEVICES, column_of, merged_requests, users_of
from models.hardware.fitting.max_flow import distribute, find_shortfall


def assign_devices(
    host: HostTopology, requests: Sequence[PciRequest], chosen: Sequence[HostCell]
) -> tuple[PlacedDevices, ...] | None:
    """Return the devices that serve the requests near the chosen cells; None if they do not."""
    cells = {cell.id: cell for cell in host.cells}
    ids = {cell.id for cell in chosen}
    sockets = {cell.socket for cell in chosen}

    def distance(pool: PciPool) -> int:
        home = None if pool.numa_node is None else cells.get(pool.numa_node)
        if home is None:
            return 2
        return 0 if home.id in ids else 1 if home.socket in sockets else 3

    requested = merged_requests(requests)
    pools = sorted(host.pci_pools, key=distance)
    users = []
    for pool in pools:
        home = None if pool.numa_node is None else cells.get(pool.numa_node)
        anywhere, around, near = column_of(pool, users_of(pool, requested), requested, home)
        usable = anywhere
        if home is not None:
            usable |= around if home.socket in sockets else 0
            usable |= near if home.id in ids else 0
        users.append(usable)
    return _served(requested, pools, users)


def place_devices_only(
    host: HostTopology, requests: Sequence[PciRequest]
) -> Placement | Misfit | None:
    """Return the devices of a guest without NUMA cells, None where it requests none.

    Such a guest is near nothing, so any device serves; those of no known place are used first,
    then those of the cell with most.
    """
    if not requests:
        return None
    requested = merged_requests(requests)
    pools = sorted(host.pci_pools, key=lambda pool: (pool.numa_node is not None, -pool.free))
    users = [users_of(pool, requested) for pool in pools]
    devices = _served(requested, pools, users)
    if devices is not None:
        return Placement((), None, devices)
    usable = _usable_stocks(requested, users)
    short = find_shortfall(
        [pci_request.count for pci_request in requested], [pool.free for pool in pools], usable
    )
    missing = short.missing if short else 0
    names = tuple(
        pci_request.id
        for number, pci_request in enumerate(requested)
        if short and short.requests >> number & 1
    )
    need = sum(pci_request.count for pci_request in requested if pci_request.id in names)
    message = f"lacks free devices {', '.join(names)}: needs {need}, has {need - missing}"
    return Misfit(DEVICES, message, (), need, need - missing, None, names)


def _served(
    requested: Sequence[PciRequest], pools: Sequence[PciPool], users: Sequence[int]
) -> tuple[PlacedDevices, ...] | None:
    given = distribute(
        [pci_request.count for pci_request in requested],
        [pool.free for pool in pools],
        _usable_stocks(requested, users),
    )
    if given is None:
        return None
    counts = [sum(row.get(number, 0) for row in given) for number in range(len(pools))]
    return tuple(
        PlacedDevices(pool.numa_node, pool.vendor_id, pool.product_id, pool.tags, count)
        for pool, count in zip(pools, counts, strict=True)
        if count
    )


def _usable_stocks(requested: Sequence[PciRequest], users: Sequence[int]) -> list[int]:
    return [
        sum(1 << number for number, requests in enumerate(users) if requests >> request & 1)
        for request in range(len(requested))
    ]
