"""From a database URL to the store behind it."""

from __future__ import annotations

import time
from collections.abc import Callable

from conductor.store.memory.memory_store import MemoryStore
from conductor.store.ports import Store
from conductor.store.sql.sql_store import SqlStore


def open_store(url: str, clock: Callable[[], float] | None = None) -> Store:
    """Return the store of `memory://`, `sqlite:///FILE` or `postgresql://…`.

    Without a clock transactions are told the time of PostgreSQL's server, the one that all
    processes share, and that of this machine where nobody else can be.

    Raises `Rejected` (`database_url_invalid`) for any other URL. Nothing is connected to yet,
    and tables are not created: `models.tables.schema_upgrade` does that.
    """
    if url == "memory://":
        return MemoryStore(clock or time.time)
    return SqlStore(url, clock)
