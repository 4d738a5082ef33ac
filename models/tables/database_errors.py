"""What databases complain of, as errors that say what to do next."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnectionLeft

from models.errors import ConductorError, Conflict, Unreachable

# PostgreSQL, appendix A: classes and codes of the SQL standard's five characters.
_MOVED_FIRST: Final = {
    "40001": "serialization_failure",
    "40P01": "deadlock",
}
_TOO_LONG: Final = {
    "55P03": "lock_timeout",
    "57014": "statement_timeout",
    "25P03": "transaction_timeout",
    "25P04": "transaction_timeout",
}
_OTHER_TABLES: Final = ("42P01", "42703", "42883", "42704", "42P10", "42804", "3F000")
"""A table, column, function, type or constraint that this release expects is not there."""

_FORBIDDEN: Final = "42501"
_OURS: Final = ("20", "21", "22", "23", "27", "2F", "3B", "42", "44", "54", "P0")
"""Classes that speak of the statement itself or its values, whatever state the server is in.

All others speak of the server, the session or the account: nothing that a message says can be
the reason, so none may be given up for it.
"""

_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_STATEMENTS_OWN: Final = (
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_MISUSE,
    sqlite3.SQLITE_RANGE,
    sqlite3.SQLITE_TOOBIG,
    0,
)
"""What SQLite says of statements and values; 0 is what its driver says without asking it."""

_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
# SQLite has one code for all that is wrong with a statement, so only its words tell this.
_NOT_THERE: Final = ("no such ", "has no column named")


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
    """Return the `Conflict` or `Unreachable` that a database's error means.

    A `Conflict` is a race that was lost, to be run again at once. All that is not for us to answer
    (away, read-only, full, forbidden, damaged, other tables, time-outs) is `Unreachable`. None is
    for what no database said, and for what it said of a defect of ours.
    """
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.Error):
        return _of_sqlite(cause)
    if isinstance(cause, psycopg.Error):
        return _of_postgresql(cause)
    if isinstance(cause, NoConnectionLeft):
        return Unreachable("database_busy", "every connection to the database is in use")
    return None


def _of_postgresql(error: psycopg.Error) -> ConductorError | None:
    state = error.sqlstate or ""
    lines = str(error).strip().splitlines() or ["no reason given"]
    text = f"PostgreSQL: {lines[0]}"
    if state in _MOVED_FIRST:
        return Conflict(_MOVED_FIRST[state], text)
    if state in _TOO_LONG:
        return Unreachable(_TOO_LONG[state], text)
    if state in _OTHER_TABLES:
        return _unprepared(lines[0])
    if not state:
        # A refused or lost connection has no code, since no server was there to send one.
        away = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return Unreachable("database_unreachable", text) if away else None
    if state.startswith(_OURS) and state != _FORBIDDEN:
        return None
    return Unreachable("database_unreachable", text, sqlstate=state)


def _of_sqlite(error: sqlite3.Error) -> ConductorError | None:
    # The low byte is the kind, the rest says more of it.
    kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
    text = f"SQLite: {error}"
    if kind in _BUSY:
        return Unreachable("database_busy", text)
    if kind in _DAMAGED:
        return Unreachable("database_damaged", text)
    if kind not in _STATEMENTS_OWN:
        return Unreachable("database_unreachable", text)
    return _unprepared(str(error)) if any(literal in str(error) for literal in _NOT_THERE) else None


def _unprepared(text: str) -> Unreachable:
    message = f"{text}; `conductor db upgrade` brings the tables up to date"
    return Unreachable("database_schema", message)
