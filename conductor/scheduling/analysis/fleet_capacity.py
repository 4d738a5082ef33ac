"""How many more of a demand fit, and how many when hosts may be lost.

Counted host by host as claims would fill it, so the number is what the scheduler can place, not
what is left added up. Rules over the hosts of a group are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from conductor.placement.local.host_claims import HostAllocation, charged
from conductor.placement.resources import most_of
from conductor.scheduling.analysis.what_if import Guest
from conductor.scheduling.filters.host_filters import UNBOUNDED, instances_left, not_crowded
from conductor.scheduling.fleet.filter_verdicts import Removal
from conductor.scheduling.fleet.fit_cache import Fits
from conductor.scheduling.fleet.fleet_snapshot import Fleet
from conductor.scheduling.fleet.host_columns import instances, left_column
from conductor.scheduling.host_selection import NoHost, apply_selection, filtered, select_host
from conductor.scheduling.request.request_spec import RequestSpec, Shape, limits_of, place
from conductor.scheduling.request.shared_providers import allocation_candidate
from conductor.scheduling.settings import SchedulingSettings
from conductor.store.records import Host
from models.errors import Rejected
from models.hardware import HostTopology, Limits, Misfit, accounting

GuestsOf = Callable[[Iterable[str]], Mapping[str, Sequence[Guest]]]
"""What is on hosts of these names: everything that has to go elsewhere should they be lost."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """How many more fit by host, hosts that take none left out, and what keeps those from it."""

    by_host: Mapping[str, int]
    hosts: int
    removals: tuple[Removal, ...]

    @property
    def total(self) -> int:
        """How many more fit in all."""
        return sum(self.by_host.values())


@dataclass(frozen=True, slots=True)
class Loss:
    """What is left once some hosts are lost: room for so many more, or who finds no place."""

    lost: tuple[str, ...]
    more: int
    homeless: tuple[str, ...] = ()


class Capacity:
    """What a fleet still has room for, of one demand; whatever is tried on it is taken back."""

    def __init__(self, spec: RequestSpec, fleet: Fleet, settings: SchedulingSettings) -> None:
        self._spec = spec
        self._fleet = fleet
        self._settings = settings
        self._counts = _Counts(spec.shape, pack=settings.pack)

    @cached_property
    def room(self) -> Headroom:
        """How many more of the demand each host takes.

        Raises `Rejected` (`nothing_asked`) for a demand of which any number fits.
        """
        shape = self._spec.shape
        if not shape.has_place and not shape.least:
            message = f"flavor is {shape.flavor.name}: it asks for nothing, so any number fits"
            raise Rejected("nothing_asked", message, key="flavor")
        alive, removals = filtered(self._spec, self._fleet, self._settings)
        by_host = self._filled([self._fleet.hosts[row] for row in np.flatnonzero(alive)])
        if not by_host:
            # What the fitter and the providers lack is known only to who asks them.
            answer = select_host(self._spec, self._fleet, self._settings, Fits())
            removals = list(answer.removals)
        return Headroom(by_host, len(self._fleet), tuple(removals))

    def _filled(self, hosts: Iterable[Host]) -> Mapping[str, int]:
        """Return how many more each of these hosts takes, one host filled after the other."""
        crowded = not_crowded in self._settings.filters_for(self._spec)
        left = instances_left(self._fleet) if crowded else None
        found = {}
        with self._fleet.rehearsal():
            for host in hosts:
                most = UNBOUNDED if left is None else int(left[self._fleet.rows[host.name]])
                if count := self._count(host, most):
                    found[host.name] = count
        return found

    def _count(self, host: Host, most: int) -> int:
        """Return how many more a host takes, with what is left of the providers beside it."""
        if not self._looks_beside:
            return min(most, self._counts.of(host))
        near, shared = self._fleet.providers.near(host)
        count, shape = 0, self._spec.shape
        while count < most:
            candidate = allocation_candidate(host, shape.request, near, {})
            answer = place(shape, host, pack=self._settings.pack)
            if candidate is None or isinstance(answer, Misfit):
                break
            host = charged(
                host, [HostAllocation("", "", answer, candidate.host_amounts)], host.updated_at
            )
            near = near.allocate(candidate.provider_amounts)
            count += 1
        if shared and count:
            # What is the host's alone nobody else can use, so only what it shares has to be noted.
            left = {name: near.get(name) for name in shared}
            self._fleet.providers = self._fleet.providers.newer(left)
        return count

    @property
    def _looks_beside(self) -> bool:
        """Whether somebody beside the hosts may serve some of it: then hosts are not alone."""
        shape = self._spec.shape
        return len(shape.request.groups) > 1 or self._fleet.providers.offers(shape.least)

    def after_losses(self, count: int, guests_of: GuestsOf) -> list[Loss]:
        """Return what is left after the loss of `count` hosts, for the worst sets that are known.

        Not every set is tried: those with most instances, most in use of each class, and most
        room for the demand are. Whoever is on them is placed elsewhere first; the worst comes
        first.
        """
        sets = dict.fromkeys(_sets(self._fleet, self.room, count))
        held = guests_of({name for names in sets for name in names})
        losses = [self._without(names, held) for names in sets]
        return sorted(losses, key=lambda loss: (not loss.homeless, loss.more))

    def _without(self, lost: tuple[str, ...], held: Mapping[str, Sequence[Guest]]) -> Loss:
        up = self._fleet.up
        self._fleet.up = up & ~self._fleet.mask(lost)
        try:
            with self._fleet.rehearsal():
                guests = [guest for name in lost for guest in held.get(name, ())]
                changed, homeless = self._moved(guests, lost)
                return Loss(lost, self._left(lost, changed), tuple(homeless))
        finally:
            self._fleet.up = up

    def _moved(self, guests: Sequence[Guest], lost: Iterable[str]) -> tuple[set[str], list[str]]:
        """Place the largest first; return which hosts took some, and who found no place."""
        # Where there is little room, what is used already comes first.
        settings = replace(self._settings, strategy="pack", alternates=0, seed=None)
        changed: set[str] = set()
        homeless = []
        fits = Fits()
        for guest in sorted(guests, key=lambda one: -sum(one.allocation.amounts.values())):
            # What it holds of storage that is shared is not lost with the host, and is its own.
            self._fleet.providers = self._fleet.providers.release(guest.provider_amounts)
            wish = replace(guest.spec, ignored=guest.spec.ignored | set(lost), host=None)
            chosen = select_host(wish, self._fleet, settings, fits)
            if isinstance(chosen, NoHost):
                homeless.append(guest.name)
                continue
            apply_selection(self._fleet, chosen, chosen.host.updated_at)
            changed.add(chosen.host.name)
        return changed, homeless

    def _left(self, lost: Iterable[str], changed: set[str]) -> int:
        if self._looks_beside:
            alive, _ = filtered(self._spec, self._fleet, self._settings)
            hosts = [self._fleet.hosts[row] for row in np.flatnonzero(alive)]
            return sum(self._filled(hosts).values())
        gone = {*lost, *changed}
        kept = sum(count for name, count in self.room.by_host.items() if name not in gone)
        again = (self._fleet.get(name) for name in changed if name in self.room.by_host)
        return kept + sum(self._filled(host for host in again if host is not None).values())


def _sets(fleet: Fleet, room: Headroom, count: int) -> Iterable[tuple[str, ...]]:
    classes = sorted({name for host in fleet.hosts for name in host.used})
    measures = [np.array([room.by_host.get(host.name, 0) for host in fleet.hosts])]
    measures += [fleet.column(instances)]
    measures += [np.array([host.used.get(name, 0) for host in fleet.hosts]) for name in classes]
    for measure in measures:
        most = np.argsort(-measure, kind="stable")[:count]
        yield tuple(sorted(fleet.hosts[row].name for row in most))


class _Counts:
    """How many of one shape a host takes, asked once for hosts that are alike."""

    def __init__(self, shape: Shape, *, pack: bool) -> None:
        self._shape = shape
        self._pack = pack
        self._known: dict[tuple[HostTopology, int, Limits], int] = {}

    def of(self, host: Host) -> int:
        """Return how often the shape can be claimed on the host, one after the other."""
        bound = _by_amounts(host, self._shape)
        if not self._shape.has_place or not bound:
            return bound
        key = (host.topology, bound, limits_of(host))
        if key not in self._known:
            self._known[key] = self._filled(host, bound)
        return self._known[key]

    def _filled(self, host: Host, bound: int) -> int:
        for count in range(bound):
            answer = place(self._shape, host, pack=self._pack)
            if isinstance(answer, Misfit):
                return count
            if answer is None:
                break
            host = replace(host, topology=accounting.claim(host.topology, answer))
        return bound


def _by_amounts(host: Host, shape: Shape) -> int:
    """Return how often the amounts fit; 0 where even one is larger than the host."""
    bound = UNBOUNDED
    for name, amount in shape.amounts.items():
        if most_of(host, name) < amount:
            return 0
        bound = min(bound, max(0, left_column(name)(host)) // amount)
    return bound
