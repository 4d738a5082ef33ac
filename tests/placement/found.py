"""A forest of a given world, and its answers in the shape of the oracle's."""

from __future__ import annotations

from collections.abc import Sequence

from conductor.placement.forest import Forest
from conductor.placement.requests import Candidate
from conductor.store.memory import MemoryStore
from conductor.store.ports import Store
from conductor.store.records import Host, Provider
from models.hardware.topology import HostTopology
from tests.placement.oracle import Way


def kept(store: Store, world: Sequence[Provider]) -> None:
    """Write a world: roots whose name ends in an odd digit as hosts, all else as providers."""
    with store.begin() as uow:
        for each in world:
            if each.parent_id is None and each.name[-1] in "13579":
                uow.hosts.put(host_of(each))
            else:
                uow.providers.put(each)


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


def refreshed(forest: Forest, store: Store) -> Forest:
    """Return the forest once it has followed the store."""
    with store.read() as uow:
        forest.refresh(uow)
    return forest


def grown(world: Sequence[Provider]) -> Forest:
    """Return a forest of a world."""
    store = MemoryStore()
    kept(store, world)
    return refreshed(Forest(), store)


def ways_of(candidates: Sequence[Candidate]) -> set[Way]:
    """Return the candidates as a set; none comes twice."""
    ways = {
        (
            frozenset(
                (name, resource_class, amount)
                for name, resources in each.allocations.items()
                for resource_class, amount in resources.items()
            ),
            frozenset((suffix, frozenset(names)) for suffix, names in each.mappings.items()),
        )
        for each in candidates
    }
    assert len(ways) == len(candidates), "no candidate comes twice"
    return ways
