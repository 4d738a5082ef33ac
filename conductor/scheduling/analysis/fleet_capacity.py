"""Remaining capacity: how many more instances of a request spec fit on a fleet.

Counted host by host as claims would fill it, so the number is what the scheduler can place, not
the sum of what is free. Rules of server groups are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from conductor.scheduling.analysis.host_count import HostCounter
from conductor.scheduling.fleet.filter_verdicts import Removal
from conductor.scheduling.fleet.fit_cache import Fits
from conductor.scheduling.fleet.fleet_snapshot import Fleet
from conductor.scheduling.host_selection import filtered, select_host
from conductor.scheduling.request.request_spec import RequestSpec
from conductor.scheduling.settings import SchedulingSettings
from models.errors import Rejected


@dataclass(frozen=True, slots=True)
class RemainingCapacity:
    """How many more fit by host, without hosts that take none, and what rules those out."""

    by_host: Mapping[str, int]
    hosts: int
    removals: tuple[Removal, ...]

    @property
    def total(self) -> int:
        """How many more fit in all."""
        return sum(self.by_host.values())


class Capacity:
    """The capacity of a fleet for one request spec; whatever is tried on it is reverted."""

    def __init__(self, spec: RequestSpec, fleet: Fleet, settings: SchedulingSettings) -> None:
        self.spec = spec
        self.fleet = fleet
        self.settings = settings
        self._counter = HostCounter(spec, fleet, settings)

    @cached_property
    def remaining(self) -> RemainingCapacity:
        """How many more instances each host takes.

        Raises `Rejected` (`nothing_asked`) for a request spec of which any number fits.
        """
        shape = self.spec.shape
        if not shape.has_place and not shape.least:
            message = f"flavor is {shape.flavor.name}: it asks for nothing, so any number fits"
            raise Rejected("nothing_asked", message, key="flavor")
        by_host, removals = self._count()
        if not by_host:
            # Only a selection tells what the fitter and other providers lack.
            removals = select_host(self.spec, self.fleet, self.settings, Fits()).removals
        return RemainingCapacity(by_host, len(self.fleet), tuple(removals))

    def after_changes(self, removed: Iterable[str], changed: Iterable[str]) -> int:
        """Return how many more fit on the fleet as it is now.

        Hosts in `removed` are down, those in `changed` have other allocations than before.
        """
        if self._counter.uses_other_providers:
            by_host, _ = self._count()
            return sum(by_host.values())
        before, changed = self.remaining.by_host, set(changed)
        gone = {*removed, *changed}
        unchanged = sum(count for name, count in before.items() if name not in gone)
        again = (self.fleet.get(name) for name in changed if name in before)
        refilled = self._counter.fill(host for host in again if host is not None)
        return unchanged + sum(refilled.values())

    def _count(self) -> tuple[Mapping[str, int], Iterable[Removal]]:
        alive, removals = filtered(self.spec, self.fleet, self.settings)
        hosts = [self.fleet.hosts[row] for row in np.flatnonzero(alive)]
        return self._counter.fill(hosts), removals
