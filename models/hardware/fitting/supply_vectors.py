"""What each place adds to what is wanted, as counters that are compared all at once.

A network is one counter. Devices have one for each set of requests looked at: such a set can
be served only if the stocks it reaches hold as much as it wants (Hall's condition).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from models.hardware.fitting.affinity import Affinity, Devices, Requests
from models.hardware.fitting.bipartite_matching import Places, members
from models.hardware.fitting.packed_counters import Counts, Tallies

Sockets: TypeAlias = int
"""A set of sockets: bit n is set when the n-th socket of the host is a member."""

Lack: TypeAlias = tuple[Counts, Sockets]
"""What is still wanted, and the sockets whose devices are counted already."""


@dataclass(frozen=True, slots=True)
class _Counter:
    """How much is wanted of one thing, and what places and sockets have of it."""

    need: int
    places: list[int]
    sockets: list[int]

    def help_of(self, place: int, socket: int) -> float:
        """Return which part of the need a place covers by itself."""
        return min(1.0, (self.places[place] + self.sockets[socket]) / self.need)


class Offers:
    """The counters of one guest's wishes, and what each place takes off them.

    `order` holds the usable places that offer anything, the most helpful first.
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
        # Room for as many places as there are rows, each with its own devices and its socket's.
        most = 2 * rows * max((counter.need for counter in counters), default=1)
        self._tallies = Tallies.of(len(counters), most)
        self._needs = self._tallies.packed(counter.need for counter in counters)
        self._own = [self._packed([c.places[n] for c in counters], counters) for n in range(places)]
        self._around = [
            self._packed([c.sockets[n] for c in counters], counters) for n in range(sockets)
        ]
        helps = {
            place: sum(counter.help_of(place, self._socket[place]) for counter in counters)
            for place in range(places)
            if usable[place]
        }
        self.order = sorted(filter(helps.get, helps), key=lambda place: -helps[place])
        self._bounds = self._suffix_bounds(rows)

    def lack(self, chosen: Places) -> Lack:
        """Return what a choice of places leaves to be wanted."""
        lack: Lack = self._needs, 0
        for place in members(chosen):
            lack = self.less(lack, place)
        return lack

    def less(self, lack: Lack, place: int) -> Lack:
        """Return what is still wanted once a place joins the choice."""
        counts, sockets = lack
        offer = self._own[place]
        socket = self._socket[place]
        if not sockets >> socket & 1:
            # A socket's devices come with the first of its places.
            offer += self._around[socket]
            sockets |= 1 << socket
        return self._tallies.less(counts, offer), sockets

    def may_end(self, lack: Lack, start: int, places: int) -> bool:
        """Say whether so many places from this position of `order` on might end the lack."""
        return self._tallies.suffice(self._bounds[start][places], lack[0])

    def _packed(self, values: Sequence[int], counters: Sequence[_Counter]) -> Counts:
        needs = (counter.need for counter in counters)
        return self._tallies.packed(map(min, values, needs))

    def _suffix_bounds(self, rows: int) -> list[list[Counts]]:
        """Return, by position and number of places, the most that these offer of each counter.

        The most that n places offer is with or without the first of them, counter by counter.
        """
        bounds = [[0] * (rows + 1)]
        for place in reversed(self.order):
            offer = self._own[place] + self._around[self._socket[place]]
            further = bounds[-1]
            joined = [further[n] + offer for n in range(rows)]
            bounds.append([0, *map(self._tallies.greater, further[1:], joined)])
        return bounds[::-1]


def _socket_numbers(devices: Devices | None, places: int) -> list[int]:
    """Return the number of each place's socket, counted as they come."""
    if devices is None:
        return [0] * places
    numbers: dict[int | None, int] = {}
    return [numbers.setdefault(socket, len(numbers)) for socket in devices.sockets]


def _counter(devices: Devices, requests: Requests, socket_of: Sequence[int]) -> _Counter:
    """Return what a set of requests wants and may use, less what is there whatever is chosen."""
    need = sum(devices.wants[request] for request in members(requests))
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
