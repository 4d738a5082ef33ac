"""The tables of the in-memory store, as one transaction asks and changes them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import override

from conductor.store.memory.memory_table import Table
from conductor.store.memory.memory_view import View
from conductor.store.ports import (
    Changes,
    DeadLetters,
    Heartbeats,
    Instances,
    Operations,
    Outbox,
    Removals,
    Rows,
    Versioned,
)
from conductor.store.records import (
    DISPATCHES,
    DeadLetter,
    Decision,
    Event,
    Heartbeat,
    Instance,
    OperationRecord,
    OutboxRow,
    Removal,
    Tally,
)
from conductor.store.table_metadata import Key, disk_gb_of
from models.hardware import Flavor, Image
from models.lifecycle import ENDED, InstanceState, OperationState

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
_HISTORY = ENDED - {OperationState.STUCK}


class MemoryRows(Rows[T]):
    """Any table: everything the port promises, one record at a time."""

    def __init__(self, view: View, table: Table[T]) -> None:
        self._view = view
        self._table = table
        self._shape = table.shape

    @override
    def get(self, *key: str) -> T | None:
        key_values = self._shape.key_values(key)
        return self._view.see(self._table, lambda hidden: self._table.get(key_values, hidden))

    @override
    def lock(self, *key: str) -> T | None:
        self._view.check_writes()
        return self.get(*key)

    @override
    def add(self, value: T) -> None:
        self.add_many([value])

    @override
    def add_many(self, values: Sequence[T]) -> None:
        keys = [self._shape.key_of(value) for value in values]
        if len(set(keys)) < len(keys) or any(key in self._table.rows for key in keys):
            raise self._shape.exists(keys)
        if self._shape.unique and self._shares_names(values):
            raise self._shape.exists(keys)
        for key, value in zip(keys, values, strict=True):
            self._write(key, value)

    @override
    def save(self, value: T) -> None:
        key = self._shape.key_of(value)
        if key not in self._table.rows:
            raise self._shape.missing(key)
        self._write(key, value)

    @override
    def put(self, value: T) -> None:
        self._write(self._shape.key_of(value), value)

    @override
    def drop(self, *key: str) -> bool:
        return self._drop(self._shape.key_values(key))

    @override
    def where(self, *, limit: int | None = None, **equals: Any) -> list[T]:
        found = sorted(self._matching(equals), key=self._shape.position_of)
        return found if limit is None else found[:limit]

    @override
    def count(self, **equals: Any) -> int:
        return len(self._matching(equals))

    def _shares_names(self, values: Sequence[T]) -> bool:
        names = [getattr(value, self._shape.unique) for value in values]
        return len(set(names)) < len(names) or self.count(**{self._shape.unique: names}) > 0

    def _matching(self, equals: Mapping[str, Any]) -> list[T]:
        self._shape.check_fields(equals)
        return self._view.see(self._table, lambda hidden: self._table.matching(equals, hidden))

    def _before(self, moment: str, at: float, limit: int) -> list[T]:
        return self._view.see(
            self._table, lambda hidden: self._table.before(moment, at, limit, hidden)
        )

    def _write(self, key: Key, value: T) -> None:
        settled = self._shape.settled(value, self._table.rows.get(key))
        self._view.replace(self._table, key, settled)

    def _drop(self, key: Key) -> bool:
        return self._view.replace(self._table, key, None) is not None

    def _drop_all(self, values: Iterable[T]) -> int:
        return sum([self._drop(self._shape.key_of(value)) for value in values])


class MemoryEvents(MemoryRows[Event]):
    """Events, numbered as they come."""

    @override
    def add_many(self, values: Sequence[Event]) -> None:
        for value in values:
            self._table.last_serial += 1
            super().put(replace(value, id=self._table.last_serial))

    @override
    def put(self, value: Event) -> None:
        if value.id is None:
            self.add(value)
        else:
            super().put(value)

    def drop_of(self, operation_id: str) -> None:
        """Delete the story of an operation."""
        self._drop_all(self._matching({"operation_id": operation_id}))


class MemoryDecisions(MemoryRows[Decision]):
    """Decisions, which go with their operation."""

    def drop_of(self, operation_id: str) -> None:
        """Delete why an operation went where it did."""
        self._drop_all(self._matching({"operation_id": operation_id}))


class MemoryOperations(MemoryRows[OperationRecord], Operations):
    """Operations, sorted by when the reaper looks at them and by when they ended."""

    def __init__(
        self,
        view: View,
        table: Table[OperationRecord],
        events: MemoryEvents,
        decisions: MemoryDecisions,
    ) -> None:
        super().__init__(view, table)
        self._events = events
        self._decisions = decisions

    @override
    def overdue(self, now: float, limit: int) -> list[str]:
        just_after = math.nextafter(now, math.inf)
        return [operation.id for operation in self._before("wakes", just_after, limit)]

    @override
    def count_waiting_on(self) -> Mapping[str, int]:
        return self._view.see(self._table, lambda hidden: self._table.counts("waiting_on", hidden))

    @override
    def unanswered(self, before: float, limit: int) -> list[OperationRecord]:
        overdue = [
            (operation.asked_at, operation.id, operation)
            for operation in self._matching({"ended_at": None})
            if operation.asked_at is not None
            and operation.asked_at <= before
            and (operation.waiting_on or "").startswith(DISPATCHES)
        ]
        return [found for _, _, found in sorted(overdue, key=lambda entry: entry[:2])[:limit]]

    @override
    def census(self) -> list[Tally]:
        groups: dict[tuple[str, OperationState, str | None], list[float]] = {}
        counted = [state for state in OperationState if state not in _HISTORY]
        for operation in self._matching({"state": counted}):
            by = (operation.kind, operation.state, operation.waiting_on)
            groups.setdefault(by, []).append(operation.created_at)
        return [Tally(*by, len(times), min(times)) for by, times in groups.items()]

    @override
    def ended_since(self, at: float, limit: int) -> list[str]:
        ended = self._view.see(
            self._table, lambda hidden: self._table.since("ended", at, limit, hidden)
        )
        return [operation.id for operation in ended]

    @override
    def drop_ended_before(self, at: float, limit: int) -> int:
        ended = self._before("ended", at, limit)
        for operation in ended:
            self._events.drop_of(operation.id)
            self._decisions.drop_of(operation.id)
        return self._drop_all(ended)


class MemoryInstances(MemoryRows[Instance], Instances):
    """Instances, summed up over one project's or one group's own."""

    @override
    def lock_many(self, ids: Iterable[str]) -> dict[str, Instance]:
        self._view.check_writes()
        found = ((key, self.get(key)) for key in sorted(set(ids)))
        return {name: instance for name, instance in found if instance is not None}

    @override
    def usage(self, project_id: str, user_id: str | None = None) -> Mapping[str, int]:
        live = self._owned(project_id, user_id)
        return {
            "instances": len(live),
            "cores": sum(instance.flavor.vcpus for instance in live),
            "memory_mb": sum(instance.flavor.memory_mib for instance in live),
            "disk_gb": sum(disk_gb_of(instance.flavor) for instance in live),
        }

    @override
    def kinds(
        self, project_id: str, user_id: str | None = None
    ) -> list[tuple[Flavor, Image | None, int]]:
        counts = Counter(
            (instance.flavor, instance.image) for instance in self._owned(project_id, user_id)
        )
        return [(flavor, image, count) for (flavor, image), count in counts.items()]

    @override
    def hosts_of_group(self, group: str) -> Mapping[str, int]:
        hosts = (instance.host for instance in self._live(group=group))
        return Counter(host for host in hosts if host is not None)

    @override
    def drop_deleted_before(self, at: float, limit: int) -> int:
        return self._drop_all(self._before("deleted", at, limit))

    def _owned(self, project_id: str, user_id: str | None) -> list[Instance]:
        of_user = {} if user_id is None else {"user_id": user_id}
        return self._live(project_id=project_id, **of_user)

    def _live(self, **equals: Any) -> list[Instance]:
        return [
            instance
            for instance in self._matching(equals)
            if instance.state != InstanceState.DELETED
        ]


class MemoryVersioned(MemoryRows[T], Versioned[T]):
    """Records and their versions."""

    @override
    def save_if(self, value: T, version: int, before: T | None = None) -> bool:
        self._view.check_writes()
        now = self.get(*self._shape.key_of(value))
        if now is None or self._shape.version_of(now) != version:
            return False
        self.save(value)
        return True

    @override
    def versions(self) -> Mapping[str, int]:
        shape = self._shape
        return {shape.key_of(item)[0]: shape.version_of(item) for item in self._matching({})}

    @override
    def changes(self, mark: int, *, counted: bool = False) -> Changes:
        versions = self.versions()
        return Changes(None, versions, len(versions))


class MemoryHeartbeats(MemoryRows[Heartbeat], Heartbeats):
    """Heartbeats, sorted by when they came."""

    @override
    def silent(self, kind: str, since: float) -> list[str]:
        older = self._before("seen", since, len(self._table.rows))
        return [beat.name for beat in older if beat.kind == kind]


class MemoryRemovals(MemoryRows[Removal], Removals):
    """Removals, sorted by when they were requested."""

    @override
    def drop_before(self, at: float, limit: int) -> int:
        return self._drop_all(self._before("requested", at, limit))


class MemoryOutbox(MemoryRows[OutboxRow], Outbox):
    """Outgoing messages, sorted by when they were written."""

    @override
    def older_than(self, at: float, limit: int) -> list[OutboxRow]:
        return self._before("written", at, limit)

    @override
    def drop_many(self, ids: Sequence[str]) -> None:
        for key in ids:
            self.drop(key)

    @override
    def oldest_at(self) -> float | None:
        oldest = self._before("written", math.inf, 1)
        return oldest[0].created_at if oldest else None


class MemoryDeadLetters(MemoryRows[DeadLetter], DeadLetters):
    """Dead letters, sorted by when they came."""

    @override
    def drop_before(self, at: float, limit: int) -> int:
        return self._drop_all(self._before("came", at, limit))
