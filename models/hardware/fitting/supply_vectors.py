"""What each place supplies of what is needed, as counters that are compared all at once.

A network is one counter. Devices have one for each set of requests looked at: such a set can
be served only if the stocks it reaches hold as much as it needs (Hall's condition).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from models.bit_sets import set_bits
from models.hardware.fitting.affinity import Affinity, Devices, Requests
from models.hardware.fitting.bipartite_matching import Places
from models.hardware.fitting.packed_counters import Counts, PackedCounters

Sockets: TypeAlias = int
"""A set of sockets: bit n is set when the n-th socket of the host is a member."""

Deficit: TypeAlias = tuple[Counts, Sockets]
"""What is still wanted, and the sockets whose devices are counted already."""


@dataclass(frozen=True, slots=True)
class _Counter:
    """How much is needed of one thing, and what places and sockets have of it."""

    need: int
    places: list[int]
    sockets: list[int]

    def coverage(self, place: int, socket: int) -> float:
        """Return which part of the need a place covers by itself."""
        return min(1.0, (self.places[place] + self.sockets[socket]) / self.need)


class SupplyVectors:
    """The counters of one guest's needs, and what each place supplies.

    `order` holds the usable places that offer anything, those that cover most first.
    """

    def __init__(
        self, affinity: Affinity, sets: Iterable[Requests], usable: Sequence[bool], rows: int
    ) -> None:
        places = len(usable)
        self._socket = _socket_numbers(affinity.devices, places)
        sockets = max(self._socket) + 1
        counters = [
            _Counter(1, [local >> place & 1 for place in range(places)], [0] * sockets)
            for local in affinity.networks
        ]
        if affinity.devices:
            looked_at = (_counter(affinity.devices, number, self._socket) for number in sets)
            counters += [counter for counter in looked_at if counter.need > 0]
        # Wide enough for a place a row, each with its own devices and its socket's.
        most = 2 * rows * max((counter.need for counter in counters), default=1)
        self._layout = PackedCounters.of(len(counters), most)
        self._needs = self._layout.packed(counter.need for counter in counters)
        self._own = [self._packed([c.places[n] for c in counters], counters) for n in range(places)]
        self._around = [
            self._packed([c.sockets[n] for c in counters], counters) for n in range(sockets)
        ]
        coverage = {
            place: sum(counter.coverage(place, self._socket[place]) for counter in counters)
            for place in range(places)
            if usable[place]
        }
        self.order = sorted(filter(coverage.get, coverage), key=lambda place: -coverage[place])
        self._bounds = self._suffix_bounds(rows)

    def deficit(self, chosen: Places) -> Deficit:
        """Return what a choice of places leaves uncovered."""
        deficit: Deficit = self._needs, 0
        for place in set_bits(chosen):
            deficit = self.less(deficit, place)
        return deficit

    def less(self, deficit: Deficit, place: int) -> Deficit:
        """Return what is still needed once a place joins the choice."""
        counts, sockets = deficit
        supply = self._own[place]
        socket = self._socket[place]
        if not sockets >> socket & 1:
            # A socket's devices come with the first of its places.
            supply += self._around[socket]
            sockets |= 1 << socket
        return self._layout.less(counts, supply), sockets

    def may_end(self, deficit: Deficit, start: int, places: int) -> bool:
        """Say whether so many places from this position of `order` on might end the deficit."""
        return self._layout.suffice(self._bounds[start][places], deficit[0])

    def _packed(self, values: Sequence[int], counters: Sequence[_Counter]) -> Counts:
        needs = (counter.need for counter in counters)
        return self._layout.packed(map(min, values, needs))

    def _suffix_bounds(self, rows: int) -> list[list[Counts]]:
        """Return, by position and number of places, an upper bound of what they supply.

        Dynamic programming from the last place back: n places supply at most the greater of n
        without the first of them and n - 1 with it, counter by counter. O(places * rows).
        """
        bounds = [[0] * (rows + 1)]
        for place in reversed(self.order):
            supply = self._own[place] + self._around[self._socket[place]]
            further = bounds[-1]
            joined = [further[n] + supply for n in range(rows)]
            bounds.append([0, *map(self._layout.greater, further[1:], joined)])
        return bounds[::-1]


def _socket_numbers(devices: Devices | None, places: int) -> list[int]:
    """Return the number of each place's socket, counted as they come."""
    if devices is None:
        return [0] * places
    numbers: dict[int | None, int] = {}
    return [numbers.setdefault(socket, len(numbers)) for socket in devices.sockets]


def _counter(devices: Devices, requests: Requests, socket_of: Sequence[int]) -> _Counter:
    """Return what a set of requests needs and may use, less what is there whatever is chosen."""
    need = sum(devices.needs[request] for request in set_bits(requests))
    places = [0] * len(socket_of)
    sockets = [0] * (max(socket_of) + 1)
    for stock in devices.stocks:
        if stock.anywhere & requests:
            need -= stock.count
        elif stock.home is None:
            continue
        elif stock.around & requests:
            sockets[socket_of[stock.home]] += stock.count
        elif stock.near & requests:
            places[stock.home] += stock.count
    return _Counter(need, places, sockets)
