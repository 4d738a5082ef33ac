"""The scheduler's view of the fleet: read once, then only what has changed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from conductor.liveness import is_up
from conductor.scheduling.fits import Fits
from conductor.scheduling.fleet import Aggregate, Catalogue, Fleet
from conductor.scheduling.settings import SchedulingSettings
from conductor.store.ports import UnitOfWork
from conductor.store.records import WAITS_ON_HOST, CatalogueEntry, Host

HEARTBEATS_PER_LIFE = 10
"""Heartbeats are read this often while a host may stay silent: they touch no claim."""


class FleetView:
    """Hosts, heartbeats and catalogue as last read. Not for two threads at once."""

    def __init__(self, settings: SchedulingSettings) -> None:
        self._settings = settings
        self.fleet = Fleet(())
        self.fits = Fits()
        self._read_at = self._heard_at = -1e9
        self._entries: list[CatalogueEntry] = []

    def refresh(self, uow: UnitOfWork, *, force: bool = False) -> bool:
        """Follow the store if the view is old, or if told to; say whether it was read."""
        now = time.monotonic()
        if not force and now - self._read_at < self._settings.refresh_s:
            return False
        catalogue = self._catalogue(uow)
        came = self._follow(uow, catalogue)
        self.fleet.busy = self.fleet.numbers(_busy(uow))
        silence_s = self._settings.down_after_s / HEARTBEATS_PER_LIFE
        if force or came or now - self._heard_at >= silence_s:
            self.fleet.up = self.fleet.mask(self._alive(uow))
            self._heard_at = now
        self._read_at = now
        return True

    def put(self, hosts: Iterable[Host]) -> None:
        """Take over hosts that this process has just written."""
        for host in hosts:
            known = self.fleet.get(host.name)
            if known is not None and known.version < host.version:
                self.fleet.put(host)

    def _follow(self, uow: UnitOfWork, catalogue: Catalogue) -> bool:
        """Read what changed; say whether hosts came or went, which makes a new fleet."""
        versions = uow.hosts.versions()
        known = {host.name: host for host in self.fleet.hosts}
        stale = [name for name, version in versions.items() if not _is_at(known, name, version)]
        read = {host.name: host for host in uow.hosts.where(name=stale)} if stale else {}
        if versions.keys() != known.keys() or catalogue is not self.fleet.catalogue:
            hosts = [host for name in versions if (host := read.get(name) or known.get(name))]
            self.fleet = Fleet(hosts, catalogue=catalogue, habits=self.fleet.habits)
            return True
        for host in read.values():
            self.fleet.put(host)
        return False

    def _catalogue(self, uow: UnitOfWork) -> Catalogue:
        entries = uow.catalogue.where(kind=("aggregate", "zone"))
        if entries == self._entries:
            return self.fleet.catalogue
        self._entries = entries
        return catalogue_of(entries)

    def _alive(self, uow: UnitOfWork) -> Iterable[str]:
        silence_s = self._settings.down_after_s
        for beat in uow.heartbeats.where(kind="compute"):
            if is_up(self.fleet.get(beat.name), beat, uow.now, silence_s):
                yield beat.name


def _busy(uow: UnitOfWork) -> Mapping[str, int]:
    """Return host to the number of operations that wait for it."""
    awaited = uow.operations.awaited().items()
    return {
        who.removeprefix(WAITS_ON_HOST): count
        for who, count in awaited
        if who.startswith(WAITS_ON_HOST)
    }


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


def _is_at(known: Mapping[str, Host], name: str, version: int) -> bool:
    host = known.get(name)
    return host is not None and host.version == version
