"""Databases as operators lose and restore them: copies of a store in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conductor.store import Store
from conductor.store.memory.memory_store import MemoryStore
from tests.operations.world import Mortal, World

_TABLES = (
    "operations",
    "instances",
    "hosts",
    "providers",
    "allocations",
    "migrations",
    "heartbeats",
    "identity",
    "registrations",
    "removals",
    "decisions",
    "outbox",
    "dead_letters",
    "catalogue",
)

Copy = Mapping[str, Sequence[Any]]


def copied(store: Store) -> Copy:
    """Return everything that a store holds now, but for what is only told."""
    with store.read() as uow:
        return {name: tuple(getattr(uow, name).where()) for name in _TABLES}


def restore(world: World, copy: Copy) -> None:
    """Put a copy, perhaps an empty one, in the place of the database, as a restore does.

    A copy is the database that it was; an empty one is another.
    """
    fresh = MemoryStore(clock=lambda: world.now)
    with fresh.begin() as uow:
        for own in uow.identity.where() if copy.get("identity") else ():
            uow.identity.drop(own.id)
        for name, records in copy.items():
            getattr(uow, name).add_many(list(records))
    world.store = Mortal(fresh)
    world.restart_conductor()
