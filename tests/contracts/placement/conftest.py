"""Every adapter of the placement port, without providers: our stores, and a real server."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from tenacity import wait_random_exponential

from conductor.placement.http.http_client import PlacementClient
from conductor.placement.http.http_placement import HttpPlacement
from conductor.placement.local.provider_index import ProviderIndex
from conductor.placement.local.store_placement import StorePlacement
from conductor.placement.ports import PlacementService
from conductor.store import Store
from conductor.store.memory.memory_store import MemoryStore
from conductor.store.sql.sql_store import SqlStore
from tests.contracts.store.conftest import (
    empty_sqlite,
    postgresql_url,
    sqlite_url,
    upgraded_postgresql,
)
from tests.environment.placement import PlacementServer

__all__ = ["empty_sqlite", "postgresql_url", "sqlite_url", "upgraded_postgresql"]

STORES = ("memory", "sqlite", "postgresql")
HTTP = "http"


class PerCall:
    """Our own placement as somebody without a transaction sees it: each call is one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._index = ProviderIndex()

    def __getattr__(self, name: str) -> object:
        def call(*arguments: object, **named: object) -> object:
            with self._store.begin() as uow:
                return getattr(StorePlacement(uow, self._index), name)(*arguments, **named)

        return call


@pytest.fixture
def http_placement(placement_server: PlacementServer) -> Iterator[HttpPlacement]:
    url = placement_server.url.replace("://", "://admin@")
    with closing(PlacementClient(url)) as client:
        yield HttpPlacement(client, wait=wait_random_exponential(multiplier=0.005, max=0.2))


@pytest.fixture
def memory_store() -> Store:
    return MemoryStore()


@pytest.fixture
def sqlite_store(sqlite_url: str) -> Iterator[Store]:
    with closing(SqlStore(sqlite_url)) as store:
        yield store


@pytest.fixture
def postgresql_store(postgresql_url: str) -> Iterator[Store]:
    with closing(SqlStore(postgresql_url)) as store:
        yield store


@pytest.fixture(params=(*STORES, HTTP))
def placement(request: pytest.FixtureRequest) -> PlacementService:
    """Return a placement service of each kind."""
    if request.param == HTTP:
        return request.getfixturevalue("http_placement")
    return PerCall(request.getfixturevalue(f"{request.param}_store"))
