"""Remaining capacity after the loss of hosts, their instances placed elsewhere first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from conductor.scheduling.analysis.fleet_capacity import Capacity, RemainingCapacity
from conductor.scheduling.analysis.what_if import Guest
from conductor.scheduling.fleet.fit_cache import Fits
from conductor.scheduling.fleet.fleet_snapshot import Fleet
from conductor.scheduling.fleet.host_columns import instances
from conductor.scheduling.host_selection import NoHost, apply_selection, select_host

GuestsOf = Callable[[Iterable[str]], Mapping[str, Sequence[Guest]]]
"""Returns the instances on hosts of these names, all of which move should the host be lost."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What remains once some hosts are lost: `more` instances fit, `homeless` ones find no host."""

    lost: tuple[str, ...]
    more: int
    homeless: tuple[str, ...] = ()


def after_losses(capacity: Capacity, count: int, guests_of: GuestsOf) -> list[Loss]:
    """Return what remains after the loss of `count` hosts, the worst loss first.

    Not every set of hosts is tried: those with most instances, with most in use of each class, and
    with most remaining capacity are.
    """
    sets = dict.fromkeys(_sets(capacity.fleet, capacity.remaining, count))
    guests = guests_of({name for names in sets for name in names})
    found = [_loss(capacity, names, guests) for names in sets]
    return sorted(found, key=lambda loss: (not loss.homeless, loss.more))


def _loss(capacity: Capacity, lost: tuple[str, ...], guests: Mapping[str, Sequence[Guest]]) -> Loss:
    fleet, up = capacity.fleet, capacity.fleet.up
    fleet.up = up & ~fleet.mask(lost)
    try:
        with fleet.rehearsal():
            leaving = [guest for name in lost for guest in guests.get(name, ())]
            changed, homeless = _evacuate(capacity, leaving, lost)
            return Loss(lost, capacity.after_changes(lost, changed), tuple(homeless))
    finally:
        fleet.up = up


def _evacuate(
    capacity: Capacity, guests: Sequence[Guest], lost: Iterable[str]
) -> tuple[set[str], list[str]]:
    """Place the largest first; return which hosts took some, and who found no host."""
    # Packed, which leaves most capacity for the largest instances.
    settings = replace(capacity.settings, strategy="pack", alternates=0, seed=None)
    fleet, fits = capacity.fleet, Fits()
    changed: set[str] = set()
    homeless = []
    for guest in sorted(guests, key=lambda one: -sum(one.allocation.amounts.values())):
        # Its allocation of shared storage survives the host, and is free for itself.
        fleet.providers = fleet.providers.release(guest.provider_amounts)
        spec = replace(guest.spec, ignored=guest.spec.ignored | set(lost), host=None)
        selection = select_host(spec, fleet, settings, fits)
        if isinstance(selection, NoHost):
            homeless.append(guest.name)
            continue
        apply_selection(fleet, selection, selection.host.updated_at)
        changed.add(selection.host.name)
    return changed, homeless


def _sets(fleet: Fleet, remaining: RemainingCapacity, count: int) -> Iterable[tuple[str, ...]]:
    classes = sorted({name for host in fleet.hosts for name in host.used})
    measures = [np.array([remaining.by_host.get(host.name, 0) for host in fleet.hosts])]
    measures += [fleet.column(instances)]
    measures += [np.array([host.used.get(name, 0) for host in fleet.hosts]) for name in classes]
    for measure in measures:
        most = np.argsort(-measure, kind="stable")[:count]
        yield tuple(sorted(fleet.hosts[row].name for row in most))
