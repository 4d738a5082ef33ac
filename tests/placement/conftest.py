"""Our own placement over a store in memory, in one transaction."""

from collections.abc import Iterator

import pytest

from conductor.placement.local.store_placement import StorePlacement
from conductor.store import UnitOfWork
from conductor.store.memory.memory_store import MemoryStore
from tests.placement.one_host import a_root


@pytest.fixture
def uow() -> Iterator[UnitOfWork]:
    """A transaction of a store with one host, `h1`, at 100 s."""
    with MemoryStore(lambda: 100.0).begin() as begun:
        begun.hosts.add(a_root("h1"))
        yield begun


@pytest.fixture
def placement(uow: UnitOfWork) -> StorePlacement:
    """Placement in the same transaction."""
    return StorePlacement(uow)
