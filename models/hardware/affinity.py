"""What a whole choice of host cells must offer together: local networks and devices.

A choice that offers enough still does when another cell joins it. The search for one that
also takes the guest's cells leans on that: it adds cells only where something is missing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from models.hardware.matching import Places, members
from models.hardware.sharing import shortfall
from models.hardware.topology import HostCell, Limits, PciPool, PciRequest

LEGACY = "legacy"
PREFERRED = "preferred"
SOCKET = "socket"

NETWORK = "network_not_local"
DEVICES = "devices_not_local"


@dataclass(frozen=True, slots=True)
class Lack:
    """What a choice of places lacks, and how much of it each further place adds at most.

    No fewer than `places` further places can end the lack; None says that all together cannot.
    """

    code: str
    missing: int
    gains: Mapping[int, int]
    places: int | None


@dataclass(frozen=True, slots=True)
class Devices:
    """Device requests against the pools of a host.

    Request r wants `wants[r]` devices; pool p holds `stock[p]`. The request may use p always
    when p is in `anywhere[r]`, and beside a chosen place c when p is in `near[r][c]`.
    """

    wants: tuple[int, ...]
    stock: tuple[int, ...]
    anywhere: tuple[Places, ...]
    near: tuple[tuple[Places, ...], ...]

    def lack(self, chosen: Places) -> Lack | None:
        """Return which devices the chosen places leave out of reach, None when all are there."""
        reach = [
            self._reach(anywhere, near, chosen)
            for anywhere, near in zip(self.anywhere, self.near, strict=True)
        ]
        short = shortfall(self.wants, self.stock, reach)
        if short is None:
            return None
        together = 0
        for request in short.requests:
            together |= reach[request]
        gains = self._gains(sorted(short.requests), [together] * len(reach))
        everything = self._gains(range(len(self.wants)), reach)
        places = _fewest(gains, short.missing)
        more = _fewest(everything, short.missing_in_all)
        bound = None if places is None or more is None else max(places, more)
        return Lack(DEVICES, short.missing, gains, bound)

    def _gains(self, requests: Iterable[int], reach: Sequence[Places]) -> dict[int, int]:
        """Return how many devices each place brings that its requests do not all reach yet."""
        gains = {}
        for place in range(len(self.near[0])):
            added = 0
            for request in requests:
                added |= self.near[request][place] & ~reach[request]
            if added:
                gains[place] = sum(self.stock[pool] for pool in members(added))
        return gains

    def kinds(self) -> list[object]:
        """Return for each place what it offers; places of equal kind can stand in for each other.

        A pool that only one place brings near counts by what it holds and for whom, not by
        which it is: swapping two such places with their pools changes nothing.
        """
        places = range(len(self.near[0]))
        reached = [self._pools_near(place) for place in places]
        return [
            tuple(sorted(self._pool_kind(pool, place, reached) for pool in members(reached[place])))
            for place in places
        ]

    def _pools_near(self, place: int) -> Places:
        pools = 0
        for near in self.near:
            pools |= near[place]
        return pools

    def _pool_kind(self, pool: int, place: int, reached: Sequence[Places]) -> tuple[int, ...]:
        users = sum(1 << r for r, near in enumerate(self.near) if near[place] >> pool & 1)
        always = sum(1 << r for r, pools in enumerate(self.anywhere) if pools >> pool & 1)
        private = sum(pools >> pool & 1 for pools in reached) == 1
        return (users, always, self.stock[pool], -1 if private else pool)

    @staticmethod
    def _reach(anywhere: Places, near: Sequence[Places], chosen: Places) -> Places:
        for place in members(chosen):
            anywhere |= near[place]
        return anywhere


@dataclass(frozen=True, slots=True)
class Affinity:
    """The networks and devices a guest wants near; places are positions among the host cells."""

    networks: tuple[Places, ...]
    devices: Devices | None

    def lack(self, chosen: Places) -> Lack | None:
        """Return of what the chosen places lack that which the fewest others offer, or None."""
        lacks = [
            Lack(NETWORK, 1, dict.fromkeys(members(local), 1), 1)
            for local in self.networks
            if not local & chosen
        ]
        missing = self.devices.lack(chosen) if self.devices else None
        if missing is not None:
            lacks.append(missing)
        return min(lacks, key=lambda lack: len(lack.gains)) if lacks else None

    def kinds(self, width: int) -> list[object]:
        """Return for each of `width` places what it offers, equal where interchangeable."""
        devices = self.devices.kinds() if self.devices else [()] * width
        return [
            (devices[place], tuple(local >> place & 1 for local in self.networks))
            for place in range(width)
        ]


def _fewest(gains: Mapping[int, int], missing: int) -> int | None:
    """Return how many of the best gains make up for what is missing, None when all do not."""
    gained = 0
    for places, gain in enumerate(sorted(gains.values(), reverse=True), start=1):
        gained += gain
        if gained >= missing:
            return places
    return None


def affinity_of(
    cells: Sequence[HostCell],
    pools: Sequence[PciPool],
    limits: Limits | None,
    requests: Sequence[PciRequest],
) -> Affinity | None:
    """Return what the guest wants near it, or None when any cells will do.

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
    return tuple(places for places in local if places)


def _devices(
    cells: Sequence[HostCell], pools: Sequence[PciPool], requests: Sequence[PciRequest]
) -> Devices:
    home = {cell.id: place for place, cell in enumerate(cells)}
    everywhere = []
    nearby = []
    for request in requests:
        anywhere = 0
        near = [0] * len(cells)
        for number, pool in enumerate(pools):
            if not pool.count or not _matches(pool, request):
                continue
            if _is_anywhere(pool, request):
                anywhere |= 1 << number
            if pool.numa_node in home:
                for place in _near_places(home[pool.numa_node], cells, request):
                    near[place] |= 1 << number
        everywhere.append(anywhere)
        nearby.append(tuple(near))
    wants = tuple(request.count for request in requests)
    stock = tuple(pool.count for pool in pools)
    return Devices(wants, stock, tuple(everywhere), tuple(nearby))


def _matches(pool: PciPool, request: PciRequest) -> bool:
    if not request.spec:
        return True
    offered = {**pool.tags, "vendor_id": pool.vendor_id, "product_id": pool.product_id}
    return any(spec.items() <= offered.items() for spec in request.spec)


def _is_anywhere(pool: PciPool, request: PciRequest) -> bool:
    """Say whether a device will do whatever cells are chosen; old hosts know no place for it."""
    policy = request.numa_policy or LEGACY
    return policy == PREFERRED or (policy == LEGACY and pool.numa_node is None)


def _near_places(home: int, cells: Sequence[HostCell], request: PciRequest) -> Sequence[int]:
    """Return the places from which a device at `home` counts as near."""
    socket = cells[home].socket
    if request.numa_policy != SOCKET or socket is None:
        return (home,)
    return [place for place, cell in enumerate(cells) if cell.socket == socket]
