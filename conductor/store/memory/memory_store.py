"""The in-memory twin: the whole contract of the store without a database."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from typing_extensions import override

from conductor.store import table_metadata
from conductor.store.memory.memory_rows import (
    MemoryDeadLetters,
    MemoryDecisions,
    MemoryEvents,
    MemoryHeartbeats,
    MemoryInstances,
    MemoryOperations,
    MemoryOutbox,
    MemoryRemovals,
    MemoryRows,
    MemoryVersioned,
)
from conductor.store.memory.memory_table import Table
from conductor.store.memory.memory_view import Shelf, View
from conductor.store.outbox_rows import outbox_row
from conductor.store.ports import Store, UnitOfWork
from conductor.store.records import Identity, OperationRecord
from conductor.store.writer_lock import Turns
from models.messages.internal import OutgoingMessage

WAIT_S: Final = 10.0


class _Tables:
    """All tables, with an index for each frequent query."""

    def __init__(self) -> None:
        self.operations = Table(
            table_metadata.OPERATIONS,
            hashed=("instance_id", "parent_id", "state", "replay_of", "waiting_on"),
            moments={"wakes": _wakes, "ended": lambda operation: operation.ended_at},
        )
        self.instances = Table(
            table_metadata.INSTANCES,
            hashed=("host", "project_id", "group", "state"),
            moments={"deleted": lambda instance: instance.deleted_at},
        )
        self.hosts = Table(table_metadata.HOSTS, hashed=("provider_id",))
        self.providers = Table(table_metadata.PROVIDERS, hashed=("name", "parent_id", "root_id"))
        self.allocations = Table(
            table_metadata.ALLOCATIONS, hashed=("consumer_id", "provider", "project_id")
        )
        self.migrations = Table(
            table_metadata.MIGRATIONS, hashed=("instance_id", "source", "target", "state")
        )
        self.heartbeats = Table(
            table_metadata.HEARTBEATS, moments={"seen": lambda heartbeat: heartbeat.seen_at}
        )
        self.identity = Table(table_metadata.IDENTITY)
        self.registrations = Table(table_metadata.REGISTRATIONS, hashed=("worker_id", "machine_id"))
        self.removals = Table(
            table_metadata.REMOVALS, moments={"requested": lambda removal: removal.at}
        )
        self.events = Table(table_metadata.EVENTS, hashed=("operation_id",))
        self.decisions = Table(table_metadata.DECISIONS, hashed=("operation_id", "instance_id"))
        self.outbox = Table(
            table_metadata.OUTBOX, moments={"written": lambda item: item.created_at}
        )
        self.dead_letters = Table(
            table_metadata.DEAD_LETTERS, moments={"came": lambda dead_letter: dead_letter.at}
        )
        self.catalogue = Table(table_metadata.CATALOGUE, hashed=("kind",))


class _UnitOfWork(UnitOfWork):
    """One transaction over the tables in memory."""

    def __init__(self, view: View, tables: _Tables, now: float) -> None:
        self.now = now
        self._view = view
        self._posted: list[OutgoingMessage] = []
        events = MemoryEvents(view, tables.events)
        decisions = MemoryDecisions(view, tables.decisions)
        self.operations = MemoryOperations(view, tables.operations, events, decisions)
        self.instances = MemoryInstances(view, tables.instances)
        self.hosts = MemoryVersioned(view, tables.hosts)
        self.providers = MemoryVersioned(view, tables.providers)
        self.allocations = MemoryRows(view, tables.allocations)
        self.migrations = MemoryRows(view, tables.migrations)
        self.heartbeats = MemoryHeartbeats(view, tables.heartbeats)
        self.identity = MemoryRows(view, tables.identity)
        self.registrations = MemoryRows(view, tables.registrations)
        self.removals = MemoryRemovals(view, tables.removals)
        self.events = events
        self.decisions = decisions
        self.outbox = MemoryOutbox(view, tables.outbox)
        self.dead_letters = MemoryDeadLetters(view, tables.dead_letters)
        self.catalogue = MemoryRows(view, tables.catalogue)

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
        # Whoever writes is alone.
        self._view.check_writes()

    @override
    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self._view.check_writes()
        mark, posted = self._view.mark, len(self._posted)
        try:
            yield
        except BaseException:
            self._view.undo(mark)
            del self._posted[posted:]
            raise


class MemoryStore(Store):
    """A store that lives as long as this object; one writer at a time, any number of readers."""

    def __init__(self, clock: Callable[[], float] = time.time, wait_s: float = WAIT_S) -> None:
        self._clock = clock
        self._tables = _Tables()
        self._shelf = Shelf()
        self._turns = Turns(exclusive=True, wait_s=wait_s)
        with self.begin() as uow:
            uow.identity.add(Identity(str(uuid.uuid4())))

    @override
    @contextmanager
    def begin(self) -> Iterator[UnitOfWork]:
        with self._turns.take(), _closing(View(self._shelf, writes=True)) as view:
            try:
                yield _UnitOfWork(view, self._tables, self._clock())
            except BaseException:
                view.undo(0)
                raise

    @override
    @contextmanager
    def read(self) -> Iterator[UnitOfWork]:
        with _closing(View(self._shelf, writes=False)) as view:
            yield _UnitOfWork(view, self._tables, self._clock())

    @override
    def close(self) -> None:
        """Nothing is held."""


@contextmanager
def _closing(view: View) -> Iterator[View]:
    try:
        yield view
    finally:
        view.close()


def _wakes(operation: OperationRecord) -> float | None:
    return None if operation.state.ended else operation.wake_at
