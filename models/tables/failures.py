"""What databases complain of, as errors that say what to do next."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnectionLeft

from models.errors import Broken, ConductorError, Conflict, Unreachable

# PostgreSQL, appendix A: classes and codes of the SQL standard's five letters.
_MOVED_FIRST: Final = {
    "40001": "serialization_failure",
    "40P01": "deadlock",
    "55P03": "lock_timeout",
    "57014": "statement_timeout",
    "25P03": "transaction_timeout",
    "25P04": "transaction_timeout",
}
_GONE: Final = ("08", "53", "57P01", "57P02", "57P03", "58")
_NO_TABLE: Final = ("42P01", "42703")
"""An unknown table or column."""

_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_UNUSABLE: Final = (
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
)
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@contextmanager
def translated() -> Iterator[None]:
    """Turn what a database reports inside the block into the error that `meaning` names."""
    try:
        yield
    except (DBAPIError, NoConnectionLeft, psycopg.Error, sqlite3.Error) as error:
        meant = meaning(error)
        if meant is None:
            raise
        raise meant from error


def meaning(error: BaseException) -> ConductorError | None:
    """Return the `Conflict`, `Unreachable` or `Broken` that a database's error means.

    None is for what no database said, and for what it said of a defect of ours.
    """
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.Error):
        return _of_sqlite(cause)
    if isinstance(cause, psycopg.Error):
        return _of_postgresql(cause)
    if isinstance(cause, NoConnectionLeft):
        return Conflict("database_busy", "every connection to the database is in use")
    return None


def _of_postgresql(error: psycopg.Error) -> ConductorError | None:
    state = error.sqlstate or ""
    text = (str(error).strip().splitlines() or ["no reason given"])[0]
    if state in _MOVED_FIRST:
        return Conflict(_MOVED_FIRST[state], f"PostgreSQL: {text}")
    # A refused or lost connection has no code, since no server was there to send one.
    if state.startswith(_GONE) or (not state and isinstance(error, psycopg.OperationalError)):
        return Unreachable("database_unreachable", f"PostgreSQL: {text}")
    return _unprepared(text) if state in _NO_TABLE else None


def _of_sqlite(error: sqlite3.Error) -> ConductorError | None:
    # The low byte is the kind, the rest says more of it.
    kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
    text = f"SQLite: {error}"
    if kind in _BUSY:
        return Conflict("database_busy", text)
    if kind in _UNUSABLE:
        return Unreachable("database_unreachable", text)
    if kind in _DAMAGED:
        return Broken("database_damaged", text)
    return _unprepared(str(error)) if str(error).startswith("no such ") else None


def _unprepared(text: str) -> Broken:
    return Broken("database_schema", f"{text}; `conductor db upgrade` brings the tables up to date")
