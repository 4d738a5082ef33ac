"""The scheduler's view of the fleet: read once, then only what has changed.

Where the store can tell what has changed, the hosts are followed at every look. Zones,
aggregates, heartbeats and work under way are looked at every `refresh_s`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from conductor.liveness import is_up, silent_before
from conductor.scheduling.fleet.fit_cache import Fits
from conductor.scheduling.fleet.fleet_snapshot import Aggregate, Catalogue, Fleet, Mask
from conductor.scheduling.settings import SchedulingSettings
from conductor.store.change_feed import Follower
from conductor.store.ports import UnitOfWork
from conductor.store.records import WAITS_ON_HOST, CatalogueEntry, Heartbeat, Host, Provider
from models.messages.catalogue import BUSY_LIMIT

COMPUTE: Final = "compute"


class FleetView:
    """Hosts, heartbeats and catalogue as last read. Not for two threads at once.

    `revision` grows whenever something is seen that a decision may depend on.
    """

    def __init__(self, settings: SchedulingSettings) -> None:
        self._settings = settings
        self.fleet = Fleet(())
        self.fits = Fits()
        self.revision = 0
        self._mark = 0
        self._follows = False
        self._read_at = -1e9
        self._entries: list[CatalogueEntry] = []
        self._followed: Follower[Provider] = Follower("id", lambda provider: provider.generation)

    def refresh(self, uow: UnitOfWork) -> bool:
        """Follow the store as far as is due; say whether that was everything."""
        now = time.monotonic()
        due = now - self._read_at >= self._settings.refresh_s
        if not due and not self._follows:
            return False
        catalogue = self._catalogue(uow) if due else self.fleet.catalogue
        came = self._follow(uow, catalogue, due=due)
        if due:
            self._look_beside(uow)
        if due or came:
            self._hear(uow, anew=came)
            self._watch(uow)
            self._read_at = now
        return due

    def look_again(self, uow: UnitOfWork) -> None:
        """Read whatever could make a yes of a no: hosts with more room, or back, or allowed now."""
        self._look_beside(uow)
        if self._follow(uow, self._catalogue(uow), due=False):
            self._hear(uow, anew=True)
        else:
            self._set_up(self.fleet.up | self._returned(uow, self._since(uow)))
        if self.fleet.tagged(BUSY_LIMIT):
            self._watch(uow)

    def _look_beside(self, uow: UnitOfWork) -> None:
        """Follow the providers that are no hosts; few, and claimed under their locks."""
        changed = self._followed.changes(uow.providers)
        if not changed:
            return
        self.fleet.beside = self.fleet.beside.newer(changed)
        self.revision += 1

    def put(self, hosts: Iterable[Host]) -> None:
        """Take over hosts that this process has just written."""
        for host in hosts:
            known = self.fleet.get(host.name)
            if known is not None and known.version < host.version:
                self.fleet.put(host)

    def _follow(self, uow: UnitOfWork, catalogue: Catalogue, *, due: bool) -> bool:
        """Read what changed; say whether hosts came or went, which makes a new fleet."""
        whole = not self._follows
        changes = uow.hosts.changes(self._mark)
        versions = changes.versions
        self._mark, self._follows = changes.mark or 0, changes.mark is not None
        if not whole and due and self._has_lost_some(uow, versions):
            whole, versions = True, uow.hosts.versions()
        stale = [name for name, version in versions.items() if not self._is_at(name, version)]
        read = {host.name: host for host in uow.hosts.where(name=stale)} if stale else {}
        self.revision += bool(read)
        rows = self.fleet.rows
        went = whole and len(versions) != len(rows)
        if went or catalogue is not self.fleet.catalogue or any(name not in rows for name in read):
            known = {host.name: host for host in self.fleet.hosts}
            names = versions if whole else {**known, **read}
            hosts = [host for name in names if (host := read.get(name) or known.get(name))]
            beside = self.fleet.beside
            self.fleet = Fleet(hosts, catalogue=catalogue, habits=self.fleet.habits)
            self.fleet.beside = beside
            self.revision += 1
            return True
        for host in read.values():
            self.fleet.put(host)
        return False

    def _has_lost_some(self, uow: UnitOfWork, changed: Mapping[str, int]) -> bool:
        """Say whether fewer hosts are left than were known: changes do not tell who was dropped."""
        came = sum(name not in self.fleet.rows for name in changed)
        return uow.hosts.count() != len(self.fleet) + came

    def _is_at(self, name: str, version: int) -> bool:
        host = self.fleet.get(name)
        return host is not None and host.version == version

    def _catalogue(self, uow: UnitOfWork) -> Catalogue:
        entries = uow.catalogue.where(kind=("aggregate", "zone"))
        if entries == self._entries:
            return self.fleet.catalogue
        self._entries = entries
        return catalogue_of(entries)

    def _hear(self, uow: UnitOfWork, *, anew: bool) -> None:
        """Note who fell silent and who is heard of again; of a new fleet, who is heard of at all.

        Of those that are up only the silent are asked for, of those that are not, all: a fleet
        that is well costs nothing.
        """
        fleet, since = self.fleet, self._since(uow)
        if anew:
            self._set_up(fleet.mask(self._alive(uow.heartbeats.where(kind=COMPUTE), since)))
            return
        silent = fleet.mask(uow.heartbeats.silent(COMPUTE, since))
        self._set_up(fleet.up & ~silent | self._returned(uow, since))

    def _returned(self, uow: UnitOfWork, since: float) -> Mask:
        """Return which of those that were not up have been heard of again."""
        down = [self.fleet.hosts[row].name for row in np.flatnonzero(~self.fleet.up)]
        beats = uow.heartbeats.where(kind=COMPUTE, name=down) if down else []
        return self.fleet.mask(self._alive(beats, since))

    def _since(self, uow: UnitOfWork) -> float:
        return silent_before(uow, self._settings.down_after_s)

    def _watch(self, uow: UnitOfWork) -> None:
        """Note how many operations wait for each host."""
        busy = self.fleet.numbers(_busy(uow))
        self.revision += not np.array_equal(busy, self.fleet.busy)
        self.fleet.busy = busy

    def _set_up(self, up: Mask) -> None:
        self.revision += not np.array_equal(up, self.fleet.up)
        self.fleet.up = up

    def _alive(self, beats: Iterable[Heartbeat], since: float) -> Iterable[str]:
        for beat in beats:
            if is_up(self.fleet.get(beat.name), beat, since):
                yield beat.name


def catalogue_of(entries: Iterable[CatalogueEntry]) -> Catalogue:
    """Return zones and aggregates as their entries describe them."""
    zones, aggregates = {}, []
    for entry in entries:
        hosts = frozenset(entry.body.get("hosts", ()))
        if entry.kind == "zone":
            zones[entry.name] = hosts
        else:
            aggregates.append(Aggregate(entry.name, hosts, entry.body.get("metadata", {})))
    return Catalogue(zones, tuple(aggregates))


def _busy(uow: UnitOfWork) -> Mapping[str, int]:
    """Return host to the number of operations that wait for it."""
    awaited = uow.operations.awaited().items()
    return {
        who.removeprefix(WAITS_ON_HOST): count
        for who, count in awaited
        if who.startswith(WAITS_ON_HOST)
    }
