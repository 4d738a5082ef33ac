"""The hosts as a scheduler last read them, with columns (NumPy arrays) of what is queried.

A filter over ten thousand hosts is then a few array operations. A column is named by a plain
function of a host (or NUMA cell); it is computed for all hosts when first used, updated as hosts
change, and evicted when it has not been used lately.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from conductor.scheduling.fleet.history import SchedulingHistory
from conductor.scheduling.request.group_rules import HOST
from conductor.scheduling.request.shared_providers import NO_SHARED_PROVIDERS
from conductor.store import Host
from models.hardware import HostCell

Numbers: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
HostColumn: TypeAlias = Callable[[Host], int]
CellColumn: TypeAlias = Callable[[HostCell], int]

NO_PLACE = -1
COLUMNS_AT_MOST = 64


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Hosts that share metadata."""

    name: str
    hosts: frozenset[str]
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Availability zones and aggregates."""

    zones: Mapping[str, frozenset[str]] = field(default_factory=dict)
    aggregates: tuple[Aggregate, ...] = ()

    def zone_of(self, host: str) -> str | None:
        """Return the availability zone of a host, the first by name where it is in several."""
        return next((zone for zone in sorted(self.zones) if host in self.zones[zone]), None)


@dataclass(frozen=True, slots=True, eq=False)
class Tagged:
    """The hosts of an aggregate, and the value of the queried key in its metadata."""

    hosts: Mask
    value: str

    @property
    def values(self) -> frozenset[str]:
        """The value as a list, comma separated."""
        return frozenset(filter(None, map(str.strip, self.value.split(","))))


class Fleet:
    """Hosts by row, in order of name; rows are stable while no host comes or goes.

    `up` is the mask of hosts with a recent heartbeat, `busy` how many operations wait for each.
    `ticks` is when each row was last put, in a count of puts that stands at `tick`. `providers`
    are the providers other than hosts.
    """

    def __init__(
        self,
        hosts: Iterable[Host],
        up: Iterable[str] = (),
        catalogue: Catalogue | None = None,
        history: SchedulingHistory | None = None,
    ) -> None:
        self.hosts = sorted(hosts, key=_by_name)
        self.rows = {host.name: row for row, host in enumerate(self.hosts)}
        self.catalogue = catalogue or Catalogue()
        self.history = history or SchedulingHistory()
        self.up: Mask = self.mask(up)
        self.busy: Numbers = np.zeros(len(self.hosts), np.int64)
        self._columns: OrderedDict[HostColumn, Numbers] = OrderedDict()
        self._totals: dict[HostColumn, int] = {}
        self._cells: OrderedDict[CellColumn, Numbers] = OrderedDict()
        self._widest = self._most_cells()
        self._labels: dict[str, Numbers] = {}
        self._zones: dict[str, Mask] = {}
        self._tagged: OrderedDict[str, tuple[Tagged, ...]] = OrderedDict()
        self._before: dict[str, Host] | None = None
        self.providers = NO_SHARED_PROVIDERS
        self.tick = 0
        self.ticks: Numbers = np.zeros(len(self.hosts), np.int64)

    def __len__(self) -> int:
        return len(self.hosts)

    def get(self, name: str) -> Host | None:
        """Return the host of that name as last seen."""
        row = self.rows.get(name)
        return None if row is None else self.hosts[row]

    def column(self, of: HostColumn) -> Numbers:
        """Return `of(host)` for every row; `of` must always be the same function object.

        Users name classes, traits and the like as they please, so only the columns that were
        asked for lately are kept.
        """
        if of not in self._columns:
            self._columns[of] = np.fromiter(map(of, self.hosts), np.int64, len(self.hosts))
            if len(self._columns) > COLUMNS_AT_MOST:
                self._columns.popitem(last=False)
        self._columns.move_to_end(of)
        return self._columns[of]

    def total(self, of: HostColumn) -> int:
        """Return the sum of a column that describes hardware: it is taken once."""
        if of not in self._totals:
            self._totals[of] = int(self.column(of).sum())
        return self._totals[of]

    def cells(self, of: CellColumn) -> Numbers:
        """Return `of(cell)` by NUMA cell and row, -1 where a host has fewer cells than others."""
        if of not in self._cells:
            values = np.full((self._widest, len(self.hosts)), -1, np.int64)
            for row, host in enumerate(self.hosts):
                values[: len(host.topology.cells), row] = list(map(of, host.topology.cells))
            self._cells[of] = values
            if len(self._cells) > COLUMNS_AT_MOST:
                self._cells.popitem(last=False)
        self._cells.move_to_end(of)
        return self._cells[of]

    def mask(self, names: Iterable[str]) -> Mask:
        """Return which rows are hosts of these names; unknown names are ignored."""
        mask = np.zeros(len(self.hosts), np.bool_)
        mask[[self.rows[name] for name in names if name in self.rows]] = True
        return mask

    def numbers(self, of: Mapping[str, int]) -> Numbers:
        """Return by row what is counted by host name, 0 for hosts that are missing."""
        numbers = np.zeros(len(self.hosts), np.int64)
        for name, count in of.items():
            if name in self.rows:
                numbers[self.rows[name]] = count
        return numbers

    def tagged(self, key: str) -> tuple[Tagged, ...]:
        """Return the hosts and the value of every aggregate whose metadata has the key."""
        if key not in self._tagged:
            self._tagged[key] = tuple(
                Tagged(self.mask(aggregate.hosts), aggregate.metadata[key])
                for aggregate in self.catalogue.aggregates
                if key in aggregate.metadata
            )
            if len(self._tagged) > COLUMNS_AT_MOST:
                self._tagged.popitem(last=False)
        self._tagged.move_to_end(key)
        return self._tagged[key]

    def zone(self, name: str) -> Mask:
        """Return which rows are in an availability zone."""
        if name not in self._zones:
            self._zones[name] = self.mask(self.catalogue.zones.get(name, ()))
        return self._zones[name]

    def labels(self, scope: str) -> Numbers:
        """Return a number for every row's place in a scope, `NO_PLACE` where it has none."""
        if scope not in self._labels:
            self._labels[scope] = self._number_places(scope)
        return self._labels[scope]

    def at(self, scope: str, places: Iterable[int]) -> Mask:
        """Return which rows are in one of these places of a scope."""
        labels = self.labels(scope)
        wanted = np.zeros(len(self.hosts) + 1, np.bool_)
        wanted[list(places)] = True
        return wanted[labels]

    def place_of(self, scope: str, host: str) -> int | None:
        """Return the number of a host's place in a scope, or None where it has none."""
        row = self.rows.get(host)
        if row is None:
            return None
        label = int(self.labels(scope)[row])
        return None if label == NO_PLACE else label

    def put(self, host: Host) -> None:
        """Replace a known host by a newer row; the cost does not depend on the fleet's size.

        A changed number of NUMA cells drops the cell columns.
        """
        row = self.rows[host.name]
        before = self.hosts[row]
        if self._before is not None:
            self._before.setdefault(host.name, before)
        self.hosts[row] = host
        self.tick += 1
        self.ticks[row] = self.tick
        for of, column in self._columns.items():
            column[row] = of(host)
        if host.topology is before.topology:
            return
        if len(host.topology.cells) != len(before.topology.cells):
            self._widest = self._most_cells()
            self._cells.clear()
        for of_cell, values in self._cells.items():
            values[: len(host.topology.cells), row] = list(map(of_cell, host.topology.cells))

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Revert at the end of the block all changes to hosts and providers made within it."""
        outer, self._before = self._before, {}
        providers = self.providers
        try:
            yield
        finally:
            self.providers = providers
            before, self._before = self._before, None
            for host in before.values():
                self.put(host)
            self._before = outer

    def _most_cells(self) -> int:
        """Return how many NUMA cells a column has, at least one."""
        return max((len(host.topology.cells) for host in self.hosts), default=0) or 1

    def _number_places(self, scope: str) -> Numbers:
        if scope == HOST:
            return np.arange(len(self.hosts))
        labels = np.full(len(self.hosts), NO_PLACE)
        numbers: dict[str, int] = {}
        for aggregate in self.catalogue.aggregates:
            if scope in aggregate.metadata:
                number = numbers.setdefault(aggregate.metadata[scope], len(numbers))
                labels[self.mask(aggregate.hosts) & (labels == NO_PLACE)] = number
        return labels


def _by_name(host: Host) -> str:
    return host.name
