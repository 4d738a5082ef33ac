"""From a database URL to the store behind it."""

from __future__ import annotations

import time
from collections.abc import Callable

from conductor.store.memory import MemoryStore
from conductor.store.ports import Store
from conductor.store.sql import SqlStore


def open_store(url: str, clock: Callable[[], float] = time.time) -> Store:
    """Return the store of `memory://`, `sqlite:///FILE` or `postgresql://…`.

    Raises `Rejected` (`database_url_invalid`) for any other URL. Nothing is connected to yet,
    and tables are not created: `models.tables.upgrade` does that.
    """
    if url == "memory://":
        return MemoryStore(clock)
    return SqlStore(url, clock)
