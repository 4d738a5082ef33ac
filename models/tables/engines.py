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
MOST: Final = 40
"""More connections than this one store never holds."""
_CACHE_KIB: Final = 32 * 1024
_STATEMENTS: Final = 512

BEGIN_TO_WRITE: Final = {"sqlite": "BEGIN IMMEDIATE", "postgresql": "BEGIN"}
"""SQLite's lock is taken at once: later it could be refused to who has already read."""

NOW: Final = "SELECT extract(epoch FROM clock_timestamp())::float8"
"""The server's own clock, which all processes share; asked in the same trip as the beginning."""

BEGIN_TO_READ: Final = {
    "sqlite": "BEGIN",
    "postgresql": "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
}
"""One snapshot for the whole transaction."""


def sqlite_writer(url: URL, wait_s: float = WAIT_S) -> Engine:
    """Return the engine of those who write; its transactions take the write lock at once."""
    # Committed is what survives the process; the last moments before a power cut may be lost.
    pragmas = ("journal_mode = WAL", "synchronous = NORMAL")
    engine = _sqlite(url, pragmas, wait_s)
    event.listen(engine, "begin", _begin_to_write)
    return engine


def sqlite_reader(url: URL, wait_s: float = WAIT_S) -> Engine:
    """Return the engine of those who only read."""
    return _sqlite(url, ("query_only = ON",), wait_s)


def postgresql(url: URL, wait_s: float = WAIT_S) -> Engine:
    """Return an engine that gives up on locks, statements and idle transactions in time.

    Its connections may have been closed by the server meanwhile: whoever begins finds out.
    """
    limits = {
        "lock_timeout": wait_s,
        "statement_timeout": STATEMENT_S,
        "idle_in_transaction_session_timeout": _IDLE_S,
    }
    options = " ".join(f"-c {name}={int(seconds * 1000)}" for name, seconds in limits.items())
    return create_engine(
        url,
        connect_args={"options": options, "connect_timeout": _CONNECT_S},
        pool_size=_POOL,
        max_overflow=MOST - _POOL,
        pool_timeout=wait_s,
        # Transactions are begun by statements, which say what kind they are.
        isolation_level="AUTOCOMMIT",
        use_native_hstore=False,
        json_deserializer=_as_is,
        hide_parameters=True,
    )


def _sqlite(url: URL, pragmas: tuple[str, ...], wait_s: float) -> Engine:
    engine = create_engine(
        url,
        # One connection serves many threads, one after the other.
        connect_args={
            "check_same_thread": False,
            "timeout": wait_s,
            "cached_statements": _STATEMENTS,
        },
        pool_size=_POOL,
        max_overflow=MOST - _POOL,
        pool_timeout=wait_s,
        hide_parameters=True,
    )

    def connected(connection: Any, _record: object) -> None:
        # The driver's own idea of when a transaction begins is switched off.
        connection.isolation_level = None
        for pragma in (*pragmas, "foreign_keys = ON", f"cache_size = -{_CACHE_KIB}"):
            connection.execute(f"PRAGMA {pragma}").close()

    event.listen(engine, "connect", connected)
    return engine


def _begin_to_write(connection: Connection) -> None:
    connection.exec_driver_sql(BEGIN_TO_WRITE["sqlite"])


def _as_is(text: Any) -> Any:
    """Pass JSON on as text: codecs know better than the driver when decoding can be saved."""
    return text
