"""Connections to SQLite and PostgreSQL, set up so that both keep the promises of the port."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL

WAIT_S: Final = 10.0
"""How long a lock is waited for before it is a `Conflict`."""

STATEMENT_S: Final = 30.0
_IDLE_S: Final = 60.0
_CONNECT_S: Final = 5
_POOL: Final = 5
_MOST: Final = 40
_CACHE_KIB: Final = 32 * 1024


def sqlite_writer(url: URL, wait_s: float = WAIT_S) -> Engine:
    """Return the engine whose transactions take SQLite's write lock at once (BEGIN IMMEDIATE).

    Taken later, the lock could be refused to a transaction that has already read.
    """
    # Committed is what survives the process; the last moments before a power cut may be lost.
    pragmas = ("journal_mode = WAL", "synchronous = NORMAL")
    return _sqlite(url, "BEGIN IMMEDIATE", pragmas, wait_s)


def sqlite_reader(url: URL, wait_s: float = WAIT_S) -> Engine:
    """Return the engine whose transactions see one snapshot and cannot write."""
    return _sqlite(url, "BEGIN", ("query_only = ON",), wait_s)


def postgresql(url: URL, wait_s: float = WAIT_S) -> Engine:
    """Return an engine that gives up on locks, statements and idle transactions in time."""
    limits = {
        "lock_timeout": wait_s,
        "statement_timeout": STATEMENT_S,
        "idle_in_transaction_session_timeout": _IDLE_S,
    }
    options = " ".join(f"-c {name}={int(seconds * 1000)}" for name, seconds in limits.items())
    return create_engine(
        url,
        connect_args={"options": options, "connect_timeout": _CONNECT_S},
        pool_pre_ping=True,
        pool_size=_POOL,
        max_overflow=_MOST - _POOL,
        pool_timeout=wait_s,
        use_native_hstore=False,
        json_serializer=_as_is,
        json_deserializer=_as_is,
    )


def _sqlite(url: URL, begin: str, pragmas: tuple[str, ...], wait_s: float) -> Engine:
    engine = create_engine(
        url,
        # One connection serves many threads, one after the other.
        connect_args={"check_same_thread": False, "timeout": wait_s},
        pool_size=_POOL,
        max_overflow=_MOST - _POOL,
        pool_timeout=wait_s,
        json_serializer=_as_is,
        json_deserializer=_as_is,
    )

    def connected(connection: Any, _record: object) -> None:
        # The driver's own idea of when a transaction begins is switched off.
        connection.isolation_level = None
        for pragma in (*pragmas, "foreign_keys = ON", f"cache_size = -{_CACHE_KIB}"):
            connection.execute(f"PRAGMA {pragma}").close()

    def begun(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", begun)
    return engine


def _as_is(text: Any) -> Any:
    """Pass JSON on as text: codecs know better than the driver when decoding can be saved."""
    return text
