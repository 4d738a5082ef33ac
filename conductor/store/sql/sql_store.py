"""The store on SQLite or PostgreSQL."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Final

import psycopg
from sqlalchemy import Engine
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.pool import PoolProxiedConnection
from typing_extensions import override

from conductor.store import table_metadata
from conductor.store.outbox_rows import outbox_row
from conductor.store.ports import Store, UnitOfWork
from conductor.store.sql.sql_hosts import Hardware, SqlHosts
from conductor.store.sql.sql_rows import (
    SqlDeadLetters,
    SqlDecisions,
    SqlEvents,
    SqlHeartbeats,
    SqlInstances,
    SqlOperations,
    SqlOutbox,
    SqlRemovals,
    SqlRows,
    SqlVersioned,
)
from conductor.store.sql.sql_session import Session
from conductor.store.sql.sql_statements import Statements
from conductor.store.sql.sql_table import Derived, SqlTable
from conductor.store.writer_lock import Turns
from models.errors import Unreachable
from models.messages.internal import OutgoingMessage
from models.tables import engines, schema
from models.tables.database_errors import translated
from models.tables.urls import engine_url

_LEFT_BEHIND: Final = ("database_unreachable", "database_damaged", "database_schema")
"""What says that the server, or what it prepared, is another than when sessions were opened."""

_SIZES: Final[Derived] = {
    "flavor": {
        "cores": lambda flavor: flavor.vcpus,
        "memory_mib": lambda flavor: flavor.memory_mib,
        "disk_gb": table_metadata.disk_gb_of,
    }
}


class _Tables:
    """The statements of all tables in one statements, built as they are first needed."""

    def __init__(self, statements: Statements) -> None:
        self.hardware = Hardware(statements)
        digest: Derived = {"topology": {"hardware": self.hardware.digest_of}}
        self.operations = SqlTable(table_metadata.OPERATIONS, schema.OPERATIONS, statements)
        self.instances = SqlTable(table_metadata.INSTANCES, schema.INSTANCES, statements, _SIZES)
        self.hosts = SqlTable(
            table_metadata.HOSTS, schema.HOSTS, statements, digest, also=("hardware",)
        )
        self.providers = SqlTable(table_metadata.PROVIDERS, schema.PROVIDERS, statements)
        self.allocations = SqlTable(table_metadata.ALLOCATIONS, schema.ALLOCATIONS, statements)
        self.migrations = SqlTable(table_metadata.MIGRATIONS, schema.MIGRATIONS, statements)
        self.heartbeats = SqlTable(table_metadata.HEARTBEATS, schema.HEARTBEATS, statements)
        self.identity = SqlTable(table_metadata.IDENTITY, schema.IDENTITY, statements)
        self.registrations = SqlTable(
            table_metadata.REGISTRATIONS, schema.REGISTRATIONS, statements
        )
        self.removals = SqlTable(table_metadata.REMOVALS, schema.REMOVALS, statements)
        self.events = SqlTable(table_metadata.EVENTS, schema.EVENTS, statements)
        self.decisions = SqlTable(table_metadata.DECISIONS, schema.DECISIONS, statements)
        self.outbox = SqlTable(table_metadata.OUTBOX, schema.OUTBOX, statements)
        self.dead_letters = SqlTable(table_metadata.DEAD_LETTERS, schema.DEAD_LETTERS, statements)
        self.catalogue = SqlTable(table_metadata.CATALOGUE, schema.CATALOGUE, statements)


class _UnitOfWork(UnitOfWork):
    """One transaction of a database."""

    def __init__(self, session: Session, tables: _Tables, now: float) -> None:
        self.now = now
        self._session = session
        self._posted: list[OutgoingMessage] = []
        events = SqlEvents(session, tables.events)
        decisions = SqlDecisions(session, tables.decisions)
        self.operations = SqlOperations(session, tables.operations, events, decisions)
        self.instances = SqlInstances(session, tables.instances)
        self.hosts = SqlHosts(session, tables.hosts, tables.hardware)
        self.providers = SqlVersioned(session, tables.providers)
        self.allocations = SqlRows(session, tables.allocations)
        self.migrations = SqlRows(session, tables.migrations)
        self.heartbeats = SqlHeartbeats(session, tables.heartbeats)
        self.identity = SqlRows(session, tables.identity)
        self.registrations = SqlRows(session, tables.registrations)
        self.removals = SqlRemovals(session, tables.removals)
        self.events = events
        self.decisions = decisions
        self.outbox = SqlOutbox(session, tables.outbox)
        self.dead_letters = SqlDeadLetters(session, tables.dead_letters)
        self.catalogue = SqlRows(session, tables.catalogue)

    @property
    @override
    def posted(self) -> Sequence[OutgoingMessage]:
        return tuple(self._posted)

    @override
    def post(self, outgoing: OutgoingMessage) -> None:
        self.outbox.put(outbox_row(outgoing, self.now))
        self._posted.append(outgoing)

    @override
    def lock(self, name: str) -> None:
        self._session.lock(name)

    @override
    @contextmanager
    def savepoint(self) -> Iterator[None]:
        posted = len(self._posted)
        try:
            with self._session.savepoint():
                yield
        except BaseException:
            del self._posted[posted:]
            raise


class SqlStore(Store):
    """A store in SQLite (`sqlite:///FILE`) or PostgreSQL (`postgresql://…`).

    Any number of threads and processes may share the database; `wait_s` is how long any of
    them waits for a lock before it is `Unreachable`. Opened after a fork, never before:
    connections do not survive one.

    Without a `clock`, `now` of a transaction is the time of PostgreSQL's server, so that processes
    whose own clocks differ agree on what is late.

    A connection on which a statement failed serves nobody else. When the server is away, or
    refuses what it took before (a primary that was demoted), none that is open then does.
    """

    def __init__(
        self, url: str, clock: Callable[[], float] | None = None, wait_s: float = engines.WAIT_S
    ) -> None:
        target = engine_url(url)
        self._embedded = target.get_backend_name() == "sqlite"
        # None: the server's, which all processes share. SQLite's are all on this machine.
        self._clock = clock or (time.time if self._embedded else None)
        self._writers, self._readers = _engines(target, wait_s)
        self._statements = Statements(self._writers.dialect)
        self._tables = _Tables(self._statements)
        self._kept: PoolProxiedConnection | None = None
        self._turns = Turns(exclusive=self._embedded, wait_s=wait_s)
        self._epoch = 0
        """Connections made before the database was last found away are of an earlier one."""

    @override
    @contextmanager
    def begin(self) -> Iterator[UnitOfWork]:
        with self._turns.take(), self._raised_by_it(), self._to_write() as connection:
            with self._transaction(connection, writes=True) as session:
                yield _UnitOfWork(session, self._tables, connection.info["now"])
            self._tables.hardware.stored |= session.written_hardware

    @override
    @contextmanager
    def read(self) -> Iterator[UnitOfWork]:
        with (
            self._raised_by_it(),
            closing(self._begun(self._readers, engines.BEGIN_TO_READ)) as connection,
            self._transaction(connection, writes=False) as session,
        ):
            yield _UnitOfWork(session, self._tables, connection.info["now"])

    @override
    def close(self) -> None:
        """Let go of connections; later use opens new ones."""
        with self._turns.take():
            kept, self._kept = self._kept, None
            if kept is not None:
                kept.close()
        self._writers.dispose()
        self._readers.dispose()

    @contextmanager
    def _raised_by_it(self) -> Iterator[None]:
        """Translate what the database says; once it is away every open connection is replaced."""
        try:
            with translated():
                yield
        except Unreachable as error:
            if error.code in _LEFT_BEHIND:
                self._epoch += 1
            raise

    @contextmanager
    def _to_write(self) -> Iterator[PoolProxiedConnection]:
        if not self._embedded:
            with closing(self._begun(self._writers, engines.BEGIN_TO_WRITE)) as connection:
                yield connection
            return
        # One connection for all: taking it from a pool each time costs as much as a commit.
        if self._kept is None or not self._kept.is_valid:
            self._kept = self._writers.raw_connection()
        try:
            self._kept.cursor().execute(engines.BEGIN_TO_WRITE["sqlite"])
        except sqlite3.Error:
            self._kept.invalidate()
            raise
        self._kept.info["now"] = self._now()
        yield self._kept

    def _begun(self, engine: Engine, begin: Mapping[str, str]) -> PoolProxiedConnection:
        """Return a connection in a transaction; one that the server has closed is replaced.

        To begin is to find out: asking every connection first whether it still lives would cost
        each transaction a statement more.
        """
        dead = 0
        while True:
            connection = engine.raw_connection()
            if connection.info.setdefault("epoch", self._epoch) != self._epoch:
                connection.invalidate()
                continue
            try:
                connection.info["now"] = self._begin(connection, begin[engine.dialect.name])
            except (psycopg.Error, sqlite3.Error):
                connection.invalidate()
                dead += 1
                if self._embedded or dead > engines.MOST:
                    raise
            else:
                return connection

    def _begin(self, connection: PoolProxiedConnection, begin: str) -> float:
        """Begin, and return what time it is; the server is asked on the way."""
        cursor = connection.cursor()
        if self._clock is not None:
            cursor.execute(begin)
            return self._clock()
        cursor.execute(f"{begin}; {engines.NOW}")
        cursor.nextset()
        row = cursor.fetchone()
        assert row is not None  # a SELECT without a table has one row
        return float(row[0])

    def _now(self) -> float:
        return self._clock() if self._clock is not None else time.time()

    @contextmanager
    def _transaction(self, connection: PoolProxiedConnection, *, writes: bool) -> Iterator[Session]:
        """Commit or roll back what has begun on the connection."""
        cursor = connection.cursor()
        session = Session(cursor, self._statements, writes=writes)
        try:
            yield session
            session.commit()
        except BaseException:
            session.end()
            _roll_back(connection, cursor)
            raise
        finally:
            # SQLite's knows nothing that it could be wrong about.
            if session.spoiled and connection.is_valid and not self._embedded:
                connection.invalidate()


def _roll_back(connection: PoolProxiedConnection, cursor: DBAPICursor) -> None:
    try:
        cursor.execute("ROLLBACK")
    except (psycopg.Error, sqlite3.Error):
        # Whatever state it is in, nobody shall use it again; the first error is the one to tell.
        connection.invalidate()


def _engines(url: URL, wait_s: float) -> tuple[Engine, Engine]:
    """Return what writes and what reads."""
    if url.get_backend_name() == "sqlite":
        return engines.sqlite_writer(url, wait_s), engines.sqlite_reader(url, wait_s)
    both = engines.postgresql(url, wait_s)
    return both, both
