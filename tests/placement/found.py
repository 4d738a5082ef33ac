"""A provider index of a given world, and its answers in the shape of the oracle's."""

from __future__ import annotations

from collections.abc import Sequence

from conductor.placement.local.provider_index import ProviderIndex
from conductor.placement.request_groups import Candidate
from conductor.store import Host, Provider, Store
from conductor.store.memory.memory_store import MemoryStore
from models.hardware import HostTopology
from tests.placement.oracle import Way


def kept(store: Store, world: Sequence[Provider]) -> None:
    """Write a world: roots whose name ends in an odd digit as hosts, all else as providers."""
    with store.begin() as uow:
        for provider in world:
            if provider.parent_id is None and provider.name[-1] in "13579":
                uow.hosts.put(host_of(provider))
            else:
                uow.providers.put(provider)


def host_of(root: Provider) -> Host:
    """Return the host that is this root."""
    return Host(
        name=root.name,
        topology=HostTopology(()),
        inventory=root.inventories,
        used=root.used,
        version=root.generation + 1,
        traits=tuple(sorted(root.traits)),
        provider_id=root.id,
        aggregates=tuple(sorted(root.aggregates)),
    )


def refreshed(provider_index: ProviderIndex, store: Store) -> ProviderIndex:
    """Return the index once it has followed the store."""
    with store.read() as uow:
        provider_index.refresh(uow)
    return provider_index


def grown(world: Sequence[Provider]) -> ProviderIndex:
    """Return an index of a world."""
    store = MemoryStore()
    kept(store, world)
    return refreshed(ProviderIndex(), store)


def ways_of(candidates: Sequence[Candidate]) -> set[Way]:
    """Return the candidates as a set; none comes twice."""
    ways = {
        (
            frozenset(
                (name, resource_class, amount)
                for name, resources in candidate.allocations.items()
                for resource_class, amount in resources.items()
            ),
            frozenset((suffix, frozenset(names)) for suffix, names in candidate.mappings.items()),
        )
        for candidate in candidates
    }
    assert len(ways) == len(candidates), "no candidate comes twice"
    return ways
