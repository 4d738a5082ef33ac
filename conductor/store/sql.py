"""The store on SQLite or PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, Engine
from sqlalchemy.engine import URL
from typing_extensions import override

from conductor.store import shapes
from conductor.store.outbox import outbox_row
from conductor.store.ports import Store, UnitOfWork
from conductor.store.sql_hosts import Hardware, SqlHosts
from conductor.store.sql_rows import (
    SqlDeadLetters,
    SqlDecisions,
    SqlEvents,
    SqlInstances,
    SqlOperations,
    SqlOutbox,
    SqlRows,
)
from conductor.store.sql_session import Session
from conductor.store.sql_table import Derived, SqlTable
from conductor.store.turns import Turns
from models.messages.letters import Letter
from models.tables import engines, schema
from models.tables.failures import translated
from models.tables.urls import engine_url

_SIZES: Final[Derived] = {
    "flavor": {
        "cores": lambda flavor: flavor.vcpus,
        "memory_mib": lambda flavor: flavor.memory_mib,
        "disk_gb": shapes.disk_gb_of,
    }
}


class _Tables:
    """The statements of all tables in one dialect, built as they are first needed."""

    def __init__(self, dialect: str) -> None:
        self.hardware = Hardware(dialect)
        digest: Derived = {"topology": {"hardware": self.hardware.digest_of}}
        self.operations = SqlTable(shapes.OPERATIONS, schema.OPERATIONS, dialect)
        self.instances = SqlTable(shapes.INSTANCES, schema.INSTANCES, dialect, _SIZES)
        self.hosts = SqlTable(shapes.HOSTS, schema.HOSTS, dialect, digest, also=("hardware",))
        self.allocations = SqlTable(shapes.ALLOCATIONS, schema.ALLOCATIONS, dialect)
        self.migrations = SqlTable(shapes.MIGRATIONS, schema.MIGRATIONS, dialect)
        self.heartbeats = SqlTable(shapes.HEARTBEATS, schema.HEARTBEATS, dialect)
        self.events = SqlTable(shapes.EVENTS, schema.EVENTS, dialect)
        self.decisions = SqlTable(shapes.DECISIONS, schema.DECISIONS, dialect)
        self.outbox = SqlTable(shapes.OUTBOX, schema.OUTBOX, dialect)
        self.dead_letters = SqlTable(shapes.DEAD_LETTERS, schema.DEAD_LETTERS, dialect)
        self.catalogue = SqlTable(shapes.CATALOGUE, schema.CATALOGUE, dialect)


class _UnitOfWork(UnitOfWork):
    """One transaction of a database."""

    def __init__(self, session: Session, tables: _Tables, now: float) -> None:
        self.now = now
        self._session = session
        self._posted: list[Letter] = []
        events = SqlEvents(session, tables.events)
        decisions = SqlDecisions(session, tables.decisions)
        self.operations = SqlOperations(session, tables.operations, events, decisions)
        self.instances = SqlInstances(session, tables.instances)
        self.hosts = SqlHosts(session, tables.hosts, tables.hardware)
        self.allocations = SqlRows(session, tables.allocations)
        self.migrations = SqlRows(session, tables.migrations)
        self.heartbeats = SqlRows(session, tables.heartbeats)
        self.events = events
        self.decisions = decisions
        self.outbox = SqlOutbox(session, tables.outbox)
        self.dead_letters = SqlDeadLetters(session, tables.dead_letters)
        self.catalogue = SqlRows(session, tables.catalogue)

    @property
    @override
    def posted(self) -> Sequence[Letter]:
        return tuple(self._posted)

    @override
    def post(self, letter: Letter) -> None:
        self.outbox.put(outbox_row(letter, self.now))
        self._posted.append(letter)

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
    them waits for a lock before it is a `Conflict`. Opened after a fork, never before:
    connections do not survive one.
    """

    def __init__(
        self, url: str, clock: Callable[[], float] = time.time, wait_s: float = engines.WAIT_S
    ) -> None:
        target = engine_url(url)
        self._clock = clock
        self._embedded = target.get_backend_name() == "sqlite"
        self._writers, self._readers = _engines(target, wait_s)
        self._kept: Connection | None = None
        self._tables = _Tables(target.get_backend_name())
        self._turns = Turns(exclusive=self._embedded, wait_s=wait_s)

    @override
    @contextmanager
    def begin(self) -> Iterator[UnitOfWork]:
        with self._turns.take():
            with translated(), self._writing() as connection:
                session = Session(connection, writes=True)
                yield _UnitOfWork(session, self._tables, self._clock())
                session.close()
            self._tables.hardware.stored |= session.written_hardware

    @override
    @contextmanager
    def read(self) -> Iterator[UnitOfWork]:
        with translated(), self._readers.begin() as connection:
            session = Session(connection, writes=False)
            yield _UnitOfWork(session, self._tables, self._clock())
            session.close()

    @override
    def close(self) -> None:
        """Let go of connections; later use opens new ones."""
        with self._turns.take():
            self._let_go()
        self._writers.dispose()
        self._readers.dispose()

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        if not self._embedded:
            with self._writers.begin() as connection:
                yield connection
            return
        # One connection for all: taking it from a pool each time costs as much as a commit.
        if self._kept is None:
            self._kept = self._writers.connect()
        try:
            with self._kept.begin():
                yield self._kept
        except BaseException:
            if self._kept.in_transaction() or self._kept.invalidated:
                self._let_go()
            raise

    def _let_go(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()


def _engines(url: URL, wait_s: float) -> tuple[Engine, Engine]:
    """Return what writes and what reads."""
    if url.get_backend_name() == "sqlite":
        return engines.sqlite_writer(url, wait_s), engines.sqlite_reader(url, wait_s)
    writers = engines.postgresql(url, wait_s)
    snapshot = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    return writers, writers.execution_options(**snapshot)
