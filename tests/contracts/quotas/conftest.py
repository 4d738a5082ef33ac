"""The stores of the store's own contract; every opening of one is another process's."""

from tests.contracts.store.conftest import (
    clock,
    empty_sqlite,
    opener,
    postgresql_url,
    sqlite_url,
    store,
    upgraded_postgresql,
)

__all__ = [
    "clock",
    "empty_sqlite",
    "opener",
    "postgresql_url",
    "sqlite_url",
    "store",
    "upgraded_postgresql",
]
