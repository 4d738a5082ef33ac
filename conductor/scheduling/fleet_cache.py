"""The scheduler's cache of the fleet: read once, then refreshed with what has changed.

Where the store has a change feed, hosts are refreshed at every decision. Zones, aggregates,
heartbeats, other providers and operations under way are read every `refresh_s`.
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
from conductor.store import (
    WAITS_ON_HOST,
    CatalogueEntry,
    Follower,
    Heartbeat,
    Host,
    Provider,
    UnitOfWork,
)
from models.messages.catalogue import BUSY_LIMIT

COMPUTE: Final = "compute"


class FleetCache:
    """Hosts, heartbeats and catalogue as last read. Not thread-safe.

    `revision` grows with every change that a decision may depend on.
    """

    def __init__(self, settings: SchedulingSettings) -> None:
        self._settings = settings
        self.fleet = Fleet(())
        self.fits = Fits()
        self.revision = 0
        self._read_at = -1e9
        self._entries: list[CatalogueEntry] = []
        self._host_feed: Follower[Host] = Follower("name", lambda host: host.version)
        self._provider_feed: Follower[Provider] = Follower(
            "id", lambda provider: provider.generation
        )

    def refresh(self, uow: UnitOfWork) -> bool:
        """Read what is due; return whether that was everything."""
        now = time.monotonic()
        due = now - self._read_at >= self._settings.refresh_s
        if not due and not self._host_feed.resumes:
            return False
        catalogue = self._catalogue(uow) if due else self.fleet.catalogue
        rebuilt = self._refresh_hosts(uow, catalogue, due=due)
        if due:
            self._refresh_providers(uow)
        if due or rebuilt:
            self._refresh_up(uow, every_host=rebuilt)
            self._refresh_busy(uow)
            self._read_at = now
        return due

    def reread(self, uow: UnitOfWork) -> None:
        """Read all that could turn a refusal around: hosts freed, back up, or allowed by now."""
        self._refresh_providers(uow)
        if self._refresh_hosts(uow, self._catalogue(uow), due=False):
            self._refresh_up(uow, every_host=True)
        else:
            self._set_up(self.fleet.up | self._back_up(uow, self._since(uow)))
        if self.fleet.tagged(BUSY_LIMIT):
            self._refresh_busy(uow)

    def _refresh_providers(self, uow: UnitOfWork) -> None:
        """Read the changed providers other than hosts; few, and claimed under their locks."""
        changed = self._provider_feed.changes(uow.providers)
        if not changed:
            return
        self.fleet.providers = self.fleet.providers.newer(changed)
        self.revision += 1

    def put(self, hosts: Iterable[Host]) -> None:
        """Take over host rows that this process has just committed."""
        written = list(hosts)
        self._host_feed.note_written(written)
        for host in written:
            known = self.fleet.get(host.name)
            if known is not None and known.version < host.version:
                self.fleet.put(host)

    def _refresh_hosts(self, uow: UnitOfWork, catalogue: Catalogue, *, due: bool) -> bool:
        """Read changed hosts; return whether the fleet was rebuilt: hosts or catalogue changed."""
        changed = self._host_feed.changes(uow.hosts, counted=due)
        self.revision += bool(changed)
        rows = self.fleet.rows
        came_or_went = any(host is None or name not in rows for name, host in changed.items())
        if came_or_went or catalogue is not self.fleet.catalogue:
            known = {host.name: host for host in self.fleet.hosts} | dict(changed)
            hosts = [host for host in known.values() if host is not None]
            providers = self.fleet.providers
            self.fleet = Fleet(hosts, catalogue=catalogue, history=self.fleet.history)
            self.fleet.providers = providers
            self.revision += 1
            return True
        for host in changed.values():
            if host is not None:
                self.fleet.put(host)
        return False

    def _catalogue(self, uow: UnitOfWork) -> Catalogue:
        entries = uow.catalogue.where(kind=("aggregate", "zone"))
        if entries == self._entries:
            return self.fleet.catalogue
        self._entries = entries
        return catalogue_of(entries)

    def _refresh_up(self, uow: UnitOfWork, *, every_host: bool) -> None:
        """Note which hosts went down and which are back up; of a rebuilt fleet, which are up.

        Of hosts that are up only silent heartbeats are queried, of those down all: a healthy
        fleet costs nothing.
        """
        fleet, since = self.fleet, self._since(uow)
        if every_host:
            self._set_up(fleet.mask(self._alive(uow.heartbeats.where(kind=COMPUTE), since)))
            return
        silent = fleet.mask(uow.heartbeats.silent(COMPUTE, since))
        self._set_up(fleet.up & ~silent | self._back_up(uow, since))

    def _back_up(self, uow: UnitOfWork, since: float) -> Mask:
        """Return which of the hosts that were down have a recent heartbeat again."""
        down = [self.fleet.hosts[row].name for row in np.flatnonzero(~self.fleet.up)]
        beats = uow.heartbeats.where(kind=COMPUTE, name=down) if down else []
        return self.fleet.mask(self._alive(beats, since))

    def _since(self, uow: UnitOfWork) -> float:
        return silent_before(uow, self._settings.down_after_s)

    def _refresh_busy(self, uow: UnitOfWork) -> None:
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
    return {
        service.removeprefix(WAITS_ON_HOST): count
        for service, count in uow.operations.count_waiting_on().items()
        if service.startswith(WAITS_ON_HOST)
    }
