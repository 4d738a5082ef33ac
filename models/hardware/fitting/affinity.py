"""What a whole choice of host cells must offer together: local networks and devices.

A choice that offers enough still does when another cell joins it; the search for one that
also takes the guest's cells relies on that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from models.bit_sets import set_bits
from models.hardware import HostCell, Limits, PciPool, PciRequest
from models.hardware.fitting.bipartite_matching import Places
from models.hardware.fitting.max_flow import Shortfall, find_shortfall

LEGACY = "legacy"
PREFERRED = "preferred"
SOCKET = "socket"

NETWORK = "network_not_local"
DEVICES = "devices_not_local"

Requests: TypeAlias = int
"""A set of device requests: bit n is set when request n is a member."""

_Column: TypeAlias = tuple[Requests, Requests, Requests]


@dataclass(frozen=True, slots=True)
class Stock:
    """Free devices that the same requests may use from the same places.

    `anywhere` may use them whatever is chosen, `around` when a place on the socket of `home`
    is, `near` only when `home` is; without a home those two are empty.
    """

    count: int
    home: int | None
    anywhere: Requests
    around: Requests
    near: Requests


@dataclass(frozen=True, slots=True)
class Devices:
    """Device requests against what a host has; `sockets[p]` is the socket of place p.

    `names[r]` is what people call the devices of request r.
    """

    needs: tuple[int, ...]
    stocks: tuple[Stock, ...]
    sockets: tuple[int | None, ...]
    names: tuple[str, ...] = ()

    def shortfall(self, chosen: Places) -> Shortfall | None:
        """Return which requests the chosen places leave short, None when all are served."""
        sockets = {self.sockets[place] for place in set_bits(chosen)}
        users = []
        for stock in self.stocks:
            requests = stock.anywhere
            if stock.home is not None:
                requests |= stock.around if self.sockets[stock.home] in sockets else 0
                requests |= stock.near if chosen >> stock.home & 1 else 0
            users.append(requests)
        usable = [
            sum(1 << number for number, requests in enumerate(users) if requests >> request & 1)
            for request in range(len(self.needs))
        ]
        return find_shortfall(self.needs, [stock.count for stock in self.stocks], usable)


@dataclass(frozen=True, slots=True)
class Affinity:
    """The networks and devices a guest needs near; places are positions among the host cells."""

    networks: tuple[Places, ...]
    devices: Devices | None

    def missing(self, chosen: Places) -> tuple[str, int] | None:
        """Return what the chosen places lack and how much of it, None when nothing."""
        absent = sum(not local & chosen for local in self.networks)
        if absent:
            return NETWORK, absent
        short = self.devices.shortfall(chosen) if self.devices else None
        return (DEVICES, short.missing) if short else None

    def short_devices(self, chosen: Places) -> tuple[str, ...]:
        """Return the names of the devices that go short together near the chosen places."""
        short = self.devices.shortfall(chosen) if self.devices else None
        if self.devices is None or short is None:
            return ()
        return tuple(
            name for number, name in enumerate(self.devices.names) if short.requests >> number & 1
        )


def affinity_of(
    cells: Sequence[HostCell],
    pools: Sequence[PciPool],
    limits: Limits | None,
    requests: Sequence[PciRequest],
) -> Affinity | None:
    """Return what the guest needs near it, or None when any cells will do.

    A network that no cell of the host calls its own is near everywhere.
    """
    networks = _local_networks(cells, limits) if limits is not None else ()
    devices = _devices(cells, pools, requests) if requests else None
    return Affinity(networks, devices) if networks or devices else None


def _local_networks(cells: Sequence[HostCell], limits: Limits) -> tuple[Places, ...]:
    if not (limits.physnets or limits.tunneled):
        return ()
    local = [
        sum(1 << place for place, cell in enumerate(cells) if physnet in cell.physnets)
        for physnet in sorted(limits.physnets)
    ]
    if limits.tunneled:
        local.append(sum(1 << place for place, cell in enumerate(cells) if cell.tunneled))
    return tuple(dict.fromkeys(places for places in local if places))


def _devices(
    cells: Sequence[HostCell], pools: Sequence[PciPool], requests: Sequence[PciRequest]
) -> Devices:
    homes = {cell.id: place for place, cell in enumerate(cells)}
    requested = merged_requests(requests)
    users_by_kind: dict[tuple[object, ...], Requests] = {}
    counts: dict[tuple[int | None, _Column], int] = {}
    for pool in pools:
        kind = (pool.vendor_id, pool.product_id, pool.tags)
        users = users_by_kind.get(kind)
        if users is None:
            users = users_by_kind[kind] = users_of(pool, requested)
        home = None if pool.numa_node is None else homes.get(pool.numa_node)
        place = home, column_of(pool, users, requested, None if home is None else cells[home])
        if pool.free and any(place[1]):
            counts[place] = counts.get(place, 0) + pool.free
    return Devices(
        tuple(request.count for request in requested),
        tuple(Stock(count, home, *column) for (home, column), count in counts.items()),
        tuple(cell.socket for cell in cells),
        tuple(request.id or request.resource_class or "of any kind" for request in requested),
    )


def merged_requests(requests: Sequence[PciRequest]) -> list[PciRequest]:
    """Return the requests, those for the same devices under the same policy made one."""
    together: dict[object, PciRequest] = {}
    for request in requests:
        kind = (request.spec, request.numa_policy or LEGACY, request.resource_class)
        other = together.get(kind)
        count = request.count + (other.count if other else 0)
        together[kind] = PciRequest(
            request.id, count, request.spec, request.numa_policy, request.resource_class
        )
    return list(together.values())


def users_of(pool: PciPool, requests: Sequence[PciRequest]) -> Requests:
    """Return the requests that devices of the pool can serve, wherever they are wanted."""
    offered = {**pool.tags, "vendor_id": pool.vendor_id, "product_id": pool.product_id}
    counted_as = pool.resource_class
    return sum(
        1 << n for n, request in enumerate(requests) if _matches(offered, counted_as, request)
    )


def _matches(offered: Mapping[str, str], counted_as: str, request: PciRequest) -> bool:
    if request.resource_class is not None:
        return request.resource_class == counted_as
    return not request.spec or any(spec.items() <= offered.items() for spec in request.spec)


def column_of(
    pool: PciPool, users: Requests, requests: Sequence[PciRequest], home: HostCell | None
) -> _Column:
    """Return the users of a pool by how near it must be: anywhere, around, near.

    Old hosts know no place for some devices; `legacy` takes those from anywhere.
    """
    anywhere = around = near = 0
    for number in set_bits(users):
        policy = requests[number].numa_policy or LEGACY
        if policy == PREFERRED or (policy == LEGACY and pool.numa_node is None):
            anywhere |= 1 << number
        elif policy == SOCKET and home is not None and home.socket is not None:
            around |= 1 << number
        elif home is not None:
            near |= 1 << number
    return anywhere, around, near
