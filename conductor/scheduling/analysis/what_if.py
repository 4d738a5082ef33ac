"""What-if: where instances would be placed, and which ones would have to move for one to fit.

Nothing is written: hosts are changed in a rehearsal on the fleet, which is reverted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Final

import numpy as np

from conductor.placement.local.host_claims import (
    HostAllocation,
    with_allocations,
    without_allocation,
)
from conductor.scheduling.filters.capacity_filters import has_amounts
from conductor.scheduling.filters.numa_filter import has_numa_cells
from conductor.scheduling.fleet.fit_cache import Fits
from conductor.scheduling.fleet.fleet_snapshot import Fleet
from conductor.scheduling.fleet.host_columns import left_column
from conductor.scheduling.host_selection import NoHost, Selection, apply_selection, select_host
from conductor.scheduling.request.request_spec import RequestSpec
from conductor.scheduling.request.shape_placement import place
from conductor.scheduling.request.shared_providers import ProviderAmounts, allocation_candidate
from conductor.scheduling.settings import SchedulingSettings
from models.hardware import FrozenMap, Misfit

NEAREST_HOSTS: Final = 256
TRIALS: Final = 4_000
"""So many combinations of instances are tried at most, the nearest hosts first."""
MOST_MOVES: Final = 2


@dataclass(frozen=True, slots=True)
class Guest:
    """An instance that could be moved: its allocation where it is, and its request spec.

    `provider_amounts` are its allocations from providers other than hosts.
    """

    instance_id: str
    name: str
    allocation: HostAllocation
    spec: RequestSpec
    provider_amounts: ProviderAmounts = field(default_factory=lambda: FrozenMap({}))


@dataclass(frozen=True, slots=True)
class Relocation:
    """One instance that would have to go from one host to another."""

    instance_id: str
    name: str
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Displacement:
    """The host on which a request fits once these instances have moved, in this order."""

    host: str
    moves: tuple[Relocation, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as the command prints it."""
        moves = [
            {"instance_id": m.instance_id, "name": m.name, "from": m.source, "to": m.target}
            for m in self.moves
        ]
        return {"host": self.host, "moves": moves}

    def __str__(self) -> str:
        moves = " and ".join(f"{m.name} moves from {m.source} to {m.target}" for m in self.moves)
        return f"fits on {self.host} if {moves}"


@dataclass(frozen=True, slots=True)
class Search:
    """How far a search for moves went, and what it found."""

    found: Displacement | None
    hosts: int
    trials: int


GuestsOn = Callable[[str], Sequence[Guest]]


class WhatIf:
    """Questions about a fleet; whatever is tried on it is reverted."""

    def __init__(self, fleet: Fleet, settings: SchedulingSettings, now: float) -> None:
        self._fleet = fleet
        self._settings = settings
        self._now = now
        self._fits = Fits()

    def placed(self, spec: RequestSpec, count: int) -> tuple[list[Selection], NoHost | None]:
        """Select hosts for `count` instances one after the other; return also why no more fit."""
        selections: list[Selection] = []
        with self._fleet.rehearsal():
            for _ in range(count):
                chosen = self._select(spec)
                if isinstance(chosen, NoHost):
                    return selections, chosen
                selections.append(chosen)
                apply_selection(self._fleet, chosen, self._now)
                if spec.group is not None:
                    spec = replace(spec, group=spec.group.joined_by(chosen.host.name))
        return selections, None

    def moves_that_help(
        self, spec: RequestSpec, guests_on: GuestsOn, placed: Sequence[Selection] = ()
    ) -> Search:
        """Return one or two instances whose moves would free enough capacity; one before two.

        The selections in `placed` count as claimed.
        """
        with self._fleet.rehearsal():
            for selection in placed:
                apply_selection(self._fleet, selection, self._now)
            return self._search(spec, guests_on)

    def _search(self, spec: RequestSpec, guests_on: GuestsOn) -> Search:
        names = self._nearest(spec)
        trials = 0
        for count in range(1, MOST_MOVES + 1):
            for name in names:
                for leaving in combinations(self._by_size(guests_on(name)), count):
                    if trials >= TRIALS:
                        return Search(None, len(names), trials)
                    trials += 1
                    found = self._try(spec, name, leaving)
                    if found is not None:
                        return Search(found, len(names), trials)
        return Search(None, len(names), trials)

    def _try(self, spec: RequestSpec, name: str, leaving: Sequence[Guest]) -> Displacement | None:
        host, providers = self._fleet.get(name), self._fleet.providers
        if host is None:
            return None
        for guest in leaving:
            host = without_allocation(host, guest.allocation, self._now)
            providers = providers.release(guest.provider_amounts)
        candidate = allocation_candidate(host, spec.shape.request, providers, spec.allocated)
        answer = place(spec.shape, host, pack=self._settings.pack)
        if candidate is None or isinstance(answer, Misfit):
            return None
        amounts = candidate.host_amounts
        allocation = HostAllocation(spec.instance_id, spec.project_id, answer, amounts)
        with self._fleet.rehearsal():
            self._fleet.put(with_allocations(host, [allocation], self._now))
            self._fleet.providers = providers.allocate(candidate.provider_amounts)
            moves = tuple(self._elsewhere(leaving, name))
        return Displacement(name, moves) if len(moves) == len(leaving) else None

    def _elsewhere(self, leaving: Sequence[Guest], source: str) -> Iterator[Relocation]:
        """Yield where each would move, until one finds no host."""
        for guest in leaving:
            spec = replace(guest.spec, ignored=guest.spec.ignored | {source}, host=None)
            selection = self._select(spec)
            if isinstance(selection, NoHost):
                return
            apply_selection(self._fleet, selection, self._now)
            yield Relocation(guest.instance_id, guest.name, source, selection.host.name)

    def _nearest(self, spec: RequestSpec) -> list[str]:
        """Return the hosts that only lack free capacity, those that lack least first."""
        alive = np.ones(len(self._fleet), np.bool_)
        for host_filter in self._settings.filters_for(spec):
            if host_filter not in (has_amounts, has_numa_cells):
                for check in host_filter(spec, self._fleet):
                    alive &= check.passed
        rows = np.flatnonzero(alive)
        share = np.ones(len(rows))
        for name, amount in spec.shape.amounts.items():
            left = self._fleet.column(left_column(name))[rows]
            np.minimum(share, left / amount, out=share)
        order = np.argsort(-share, kind="stable")[:NEAREST_HOSTS]
        return [self._fleet.hosts[row].name for row in rows[order]]

    def _by_size(self, guests: Sequence[Guest]) -> list[Guest]:
        return sorted(guests, key=lambda guest: sum(guest.allocation.amounts.values()))

    def _select(self, spec: RequestSpec) -> Selection | NoHost:
        return select_host(spec, self._fleet, self._settings, self._fits)
