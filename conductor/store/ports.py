"""The store's ports: a unit of work over tables of frozen records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from conductor.store.records import (
    Allocation,
    CatalogueEntry,
    DeadLetter,
    Decision,
    Event,
    Heartbeat,
    Host,
    Identity,
    Instance,
    Migration,
    OperationRecord,
    OutboxRow,
    Provider,
    Registration,
    Removal,
    Tally,
)
from models.hardware import Flavor, Image
from models.messages.internal import OutgoingMessage

T = TypeVar("T")


class Rows(Protocol[T]):
    """A table of frozen records; keys are the record's key fields, in order.

    Keys: id, except Host (name), Heartbeat (name), Allocation (consumer_id, provider),
    CatalogueEntry (kind, name). The name of a Provider is unique and never changes.
    """

    def get(self, *key: str) -> T | None:
        """Return the record as this transaction sees it, or nothing."""

    def lock(self, *key: str) -> T | None:
        """Return the newest committed record and keep others from changing it until the end."""

    def add(self, value: T) -> None:
        """Insert; raise `Conflict` (code `exists`) when the key, or a unique name, is taken.

        The conflict leaves the transaction usable, so that a caller may go on.
        """

    def add_many(self, values: Sequence[T]) -> None:
        """Insert many at the cost of one statement."""

    def save(self, value: T) -> None:
        """Replace the record of the same key; raise `Broken` when there is none."""

    def put(self, value: T) -> None:
        """Insert or replace."""

    def drop(self, *key: str) -> bool:
        """Delete; say whether there was one."""

    def where(self, *, limit: int | None = None, **equals: Any) -> list[T]:
        """Return the records whose fields equal these, oldest first.

        A value that is a set, list or tuple means any of them; None means absent, `StartsWith`
        a text that begins so.
        """

    def count(self, **equals: Any) -> int:
        """Count what `where` would return."""


class Operations(Rows[OperationRecord], Protocol):
    """Operations, and the queries of the reaper."""

    def overdue(self, now: float, limit: int) -> list[str]:
        """Return ids of running operations whose `wake_at` has passed, longest overdue first."""

    def count_waiting_on(self) -> Mapping[str, int]:
        """Count operations by what they wait on (`waiting_on`)."""

    def unanswered(self, before: float, limit: int) -> list[OperationRecord]:
        """Return running operations dispatched at `before` or earlier, oldest dispatch first.

        Operations whose reply has come, and that wait for something else, are not among them.
        """

    def census(self) -> list[Tally]:
        """Count those that have not ended, or are stuck, in groups of what is the same of them.

        Cost grows with live operations, not with history.
        """

    def ended_since(self, at: float, limit: int) -> list[str]:
        """Return ids of operations that ended at `at` or later, the latest first."""

    def drop_ended_before(self, at: float, limit: int) -> int:
        """Delete ended operations with their events and decisions; return how many."""


class Instances(Rows[Instance], Protocol):
    """Instances, and sums over them."""

    def lock_many(self, ids: Iterable[str]) -> dict[str, Instance]:
        """Lock and return many in ascending order of id, so that two such calls never deadlock."""

    def usage(self, project_id: str, user_id: str | None = None) -> Mapping[str, int]:
        """Return `instances, cores, memory_mb, disk_gb` of a project's, or user's, live instances.

        Live is everything but deleted; one statement, flat in what others own.
        """

    def kinds(
        self, project_id: str, user_id: str | None = None
    ) -> list[tuple[Flavor, Image | None, int]]:
        """Return which flavors with which images the same instances have, and how many each."""

    def hosts_of_group(self, group: str) -> Mapping[str, int]:
        """Return host to number of live members of a server group placed there."""

    def drop_deleted_before(self, at: float, limit: int) -> int:
        """Delete instances that were deleted before `at`; return how many."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Key to version of records, and the mark to resume at.

    Without a mark the store cannot tell what has changed: the versions are of all records.
    `total` is how many records there are, where they were to be counted: fewer than were known
    tells that some were dropped.
    """

    mark: int | None
    versions: Mapping[str, int]
    total: int | None = None


class Versioned(Rows[T], Protocol[T]):
    """Records whose version grows with every change: hosts (`version`), providers (`generation`).

    They are claimed optimistically, and caches follow them.
    """

    def save_if(self, value: T, version: int, before: T | None = None) -> bool:
        """Replace the record only if it is still at `version`; say whether it was.

        With `before`, the record as it is at that version, only what differs need be written.
        """

    def versions(self) -> Mapping[str, int]:
        """Return key to version of all records: what a cache compares itself with."""

    def changes(self, mark: int, *, counted: bool = False) -> Changes:
        """Return the records that were added or changed since an earlier call gave that mark.

        0 is the mark of who knows nothing yet. None that was committed is ever missed, whatever
        order transactions commit in; some may come again. Those that were dropped do not come.
        """


class Heartbeats(Rows[Heartbeat], Protocol):
    """Heartbeats of processes and hosts."""

    def silent(self, kind: str, since: float) -> list[str]:
        """Return the names of those of a kind that sent their last heartbeat before `since`."""


class Removals(Rows[Removal], Protocol):
    """Removals of guests from hosts, requested by operations."""

    def drop_before(self, at: float, limit: int) -> int:
        """Delete old ones; return how many."""


class Outbox(Rows[OutboxRow], Protocol):
    """The transactional outbox: messages that are committed and not yet published."""

    def older_than(self, at: float, limit: int) -> list[OutboxRow]:
        """Return messages written before `at`, oldest first."""

    def drop_many(self, ids: Sequence[str]) -> None:
        """Delete messages that have been published."""

    def oldest_at(self) -> float | None:
        """Return when the oldest message was written."""


class DeadLetters(Rows[DeadLetter], Protocol):
    """Dead letters: messages that could not be handled."""

    def drop_before(self, at: float, limit: int) -> int:
        """Delete old ones; return how many."""


class UnitOfWork(Protocol):
    """One transaction: everything in it happens, or nothing."""

    now: float
    operations: Operations
    instances: Instances
    hosts: Versioned[Host]
    providers: Versioned[Provider]
    allocations: Rows[Allocation]
    migrations: Rows[Migration]
    heartbeats: Heartbeats
    identity: Rows[Identity]
    registrations: Rows[Registration]
    removals: Removals
    events: Rows[Event]
    decisions: Rows[Decision]
    outbox: Outbox
    dead_letters: DeadLetters
    catalogue: Rows[CatalogueEntry]

    @property
    def posted(self) -> Sequence[OutgoingMessage]:
        """The messages written to the outbox by this transaction."""

    def post(self, outgoing: OutgoingMessage) -> None:
        """Write a message to the outbox: it is published only if this transaction commits."""

    def lock(self, name: str) -> None:
        """Keep others that lock the same name waiting until the end; no record has to have it.

        Whatever follows in this transaction is read and written after the lock was got. Who locks
        several names does so in ascending order, and before any record. A store with one writer has
        nothing to do.
        """

    def savepoint(self) -> AbstractContextManager[None]:
        """Undo what happened inside when the block raises, and let the error pass."""


class Store(Protocol):
    """A database of the conductor: opens transactions."""

    def begin(self) -> AbstractContextManager[UnitOfWork]:
        """Open a transaction for writing; commit at the end of the block, roll back on an error.

        Serialization failures and deadlocks raise `Conflict`; a database that is away, busy,
        full, read-only or of another release raises `Unreachable`.
        """

    def read(self) -> AbstractContextManager[UnitOfWork]:
        """Open a transaction for reading: consistent, and never in the way of a writer."""

    def close(self) -> None:
        """Close all connections."""
