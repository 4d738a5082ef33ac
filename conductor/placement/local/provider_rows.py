"""Hosts and all other providers as one table, within one transaction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from conductor.placement.providers import root_of
from conductor.store import Host, Provider, UnitOfWork
from models.errors import Broken, Conflict, Rejected


class ProviderRows:
    """Finds, locks and writes providers, whichever table they are in.

    `written` says whether this has changed any of them yet.
    """

    def __init__(self, uow: UnitOfWork) -> None:
        self.written = False
        self._uow = uow
        self._host_ids: set[str] = set()

    def get(self, provider_id: str) -> Provider | None:
        """Return a provider, or nothing."""
        return self.of_ids([provider_id]).get(provider_id)

    def must_get(self, provider_id: str) -> Provider:
        """Return a provider; raise `Rejected` (`provider_unknown`) where there is none."""
        (found,) = self.must_find([provider_id])
        return found

    def of_ids(self, ids: Iterable[str]) -> dict[str, Provider]:
        """Return those of these ids that there are."""
        wanted = set(ids) - {""}
        found = self._uow.providers.where(id=sorted(wanted)) if wanted else []
        missing = wanted - {provider.id for provider in found}
        hosts = self._uow.hosts.where(provider_id=sorted(missing)) if missing else []
        return {provider.id: provider for provider in (*found, *self._roots(hosts))}

    def must_find(self, ids: Iterable[str], *, lock: bool = False) -> list[Provider]:
        """Return the providers of these ids; raise `Rejected` (`provider_unknown`) for another.

        Those that are no hosts are locked on the way where it is told: in order of id.
        """
        wanted = set(ids)
        known = filter(None, map(self._uow.providers.lock, sorted(wanted) if lock else ()))
        found = {provider.id: provider for provider in known}
        found |= self.of_ids(wanted - found.keys())
        for name in sorted(wanted - found.keys()):
            raise _unknown(name)
        return list(found.values())

    def ids_of(self, names: Iterable[str]) -> dict[str, str]:
        """Return name to id; raise `Broken` (`provider_missing`) for a name that nobody has.

        An allocation of what is not there must not be read as no allocation.
        """
        wanted = set(names)
        found = {provider.name: provider.id for provider in self.named(wanted)}
        if missing := sorted(wanted - found.keys()):
            message = f"{missing[0]} is allocated, and no such provider is there"
            raise Broken("provider_missing", message, provider=missing[0])
        return found

    def named(self, names: Iterable[str]) -> list[Provider]:
        """Return those of these names that there are."""
        wanted = set(names)
        hosts = self._uow.hosts.where(name=sorted(wanted)) if wanted else []
        missing = wanted - {host.name for host in hosts}
        others = self._uow.providers.where(name=sorted(missing)) if missing else []
        return [*self._roots(hosts), *others]

    def tree(self, root_id: str) -> list[Provider]:
        """Return all providers of one tree."""
        hosts = self._uow.hosts.where(provider_id=root_id) if root_id else []
        return [*self._roots(hosts), *self._uow.providers.where(root_id=root_id)]

    def all(self) -> list[Provider]:
        """Return all providers."""
        return [*self._roots(self._uow.hosts.where()), *self._uow.providers.where()]

    def is_host(self, provider: Provider) -> bool:
        """Say whether a provider that was found here is a host."""
        return provider.id in self._host_ids

    def lock(self, providers: Iterable[Provider]) -> dict[str, Provider]:
        """Lock providers that were found here, and return them as they are now, by name.

        By id, hosts last and by name: whoever locks does so in one order. Raises `Rejected`
        (`provider_unknown`) for one that is gone.
        """
        ordered = sorted(providers, key=self._position)
        return {provider.name: self._locked(provider) for provider in ordered}

    def add(self, provider: Provider) -> bool:
        """Write a new provider; say whether neither its id nor its name was taken."""
        try:
            self._uow.providers.add(provider)
        except Conflict:
            return False
        self.written = True
        return True

    def drop(self, provider: Provider) -> None:
        """Delete a provider that is no host."""
        self._uow.providers.drop(provider.id)
        self.written = True

    def save(self, provider: Provider, guests: int = 0) -> Provider:
        """Write a provider that is locked, one generation later; a host with `guests` more."""
        self.written = True
        after = replace(provider, generation=provider.generation + 1)
        if self.is_host(provider):
            host = self._uow.hosts.lock(provider.name)
            if host is None:
                raise _unknown(provider.id)
            self._uow.hosts.save(_host_of(after, host, guests, self._uow.now))
        else:
            self._uow.providers.save(after)
        return after

    def _position(self, provider: Provider) -> tuple[bool, str]:
        host = self.is_host(provider)
        return host, provider.name if host else provider.id

    def _locked(self, provider: Provider) -> Provider:
        if self.is_host(provider):
            host = self._uow.hosts.lock(provider.name)
            found = None if host is None else root_of(host)
        else:
            found = self._uow.providers.lock(provider.id)
        if found is None:
            raise _unknown(provider.id)
        return found

    def _roots(self, hosts: Iterable[Host]) -> list[Provider]:
        roots = [root_of(host) for host in hosts if host.provider_id]
        self._host_ids.update(root.id for root in roots)
        return roots


def _host_of(provider: Provider, host: Host, guests: int, now: float) -> Host:
    """Return the host with what its provider says; what is equal stays the same object."""
    traits, aggregates = host.traits, host.aggregates
    if provider.traits != frozenset(traits):
        traits = tuple(sorted(provider.traits))
    if provider.aggregates != frozenset(aggregates):
        aggregates = tuple(sorted(provider.aggregates))
    return replace(
        host,
        inventory=provider.inventories,
        used=provider.used,
        traits=traits,
        aggregates=aggregates,
        instances=host.instances + guests,
        version=provider.generation,
        updated_at=now,
    )


def _unknown(provider_id: str) -> Rejected:
    message = f"provider is {provider_id}: there is no such resource provider"
    return Rejected("provider_unknown", message, key="provider", provider=provider_id)
