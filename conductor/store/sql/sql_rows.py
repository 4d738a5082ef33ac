"""The tables of the SQL store, as one transaction asks and changes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Executable, Table
from typing_extensions import override

from conductor.store.codecs import FLAVOR, IMAGE
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
from conductor.store.sql import sql_queries
from conductor.store.sql.sql_session import Session
from conductor.store.sql.sql_statements import Params
from conductor.store.sql.sql_table import SqlTable
from conductor.store.table_metadata import Key
from models.hardware import Flavor, Image
from models.lifecycle import OperationState

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


class SqlRows(Rows[T]):
    """Any table: everything the port promises, from its shape alone."""

    def __init__(self, session: Session, table: SqlTable[T]) -> None:
        self._session = session
        self._table = table
        self._shape = table.shape

    @override
    def get(self, *key: str) -> T | None:
        return self._one(self._shape.key_values(key), lock=False)

    @override
    def lock(self, *key: str) -> T | None:
        self._session.check_writes()
        return self._one(self._shape.key_values(key), lock=True)

    @override
    def add(self, value: T) -> None:
        self._session.check_writes()
        params = self._encoded(value, self._shape.fields)
        if not self._session.run(self._table.insert(), params).rowcount:
            raise self._shape.exists([self._shape.key_of(value)])
        self._hold(value)

    @override
    def add_many(self, values: Sequence[T]) -> None:
        if len(values) < 2:
            for value in values:
                self.add(value)
            return
        self._session.check_writes()
        params = [self._encoded(value, self._shape.fields) for value in values]
        # All or none: what went in beside a taken key goes out again.
        with self._session.savepoint():
            if self._session.run_many(self._table.insert(), params).rowcount < len(values):
                raise self._shape.exists([self._shape.key_of(value) for value in values])

    @override
    def save(self, value: T) -> None:
        self._session.check_writes()
        if not self._update(value):
            raise self._shape.missing(self._shape.key_of(value))

    @override
    def put(self, value: T) -> None:
        self._session.check_writes()
        self._session.run_later(self._table.upsert(), self._encoded(value, self._shape.fields))
        self._hold(value)

    @override
    def drop(self, *key: str) -> bool:
        self._session.check_writes()
        key_values = self._shape.key_values(key)
        self._session.let_go((self._shape.name, key_values))
        params = self._table.key_params(key_values)
        return self._session.run(self._table.delete(), params).rowcount > 0

    @override
    def where(self, *, limit: int | None = None, **equals: Any) -> list[T]:
        tests, params = self._table.conditions(equals)
        if limit is not None:
            params["row_limit"] = limit
        statement = self._table.select_where(tests, limited=limit is not None)
        return self._found(statement, params, hold=self._session.reads_hold)

    @override
    def count(self, **equals: Any) -> int:
        tests, params = self._table.conditions(equals)
        ((found,),) = self._session.run(self._table.count_where(tests), params).fetchall()
        return int(found)

    def _one(self, key: Key, *, lock: bool) -> T | None:
        name = (self._shape.name, key)
        if name in self._session.read:
            known: T = self._session.held[name]
            return known
        hold = lock or self._session.reads_hold
        statement = self._table.select(lock=lock)
        found = self._found(statement, self._table.key_params(key), hold=hold)
        return found[0] if found else None

    def _found(self, statement: Executable, params: Params, *, hold: bool) -> list[T]:
        records = self._decoded(self._session.run(statement, params).fetchall())
        if hold:
            for record in records:
                self._hold(record, read=True)
        return records

    def _update(self, value: T) -> bool:
        """Write what differs from what the database holds; say whether there was a record."""
        key = self._shape.key_of(value)
        held: T | None = self._session.held.get((self._shape.name, key))
        names = self._table.values if held is None else self._table.changed(value, held)
        if not names:
            return True
        params = {**self._encoded(value, names), **self._table.key_params(key)}
        if held is not None:
            # It is there, and nobody else can change it: the answer is known.
            self._session.run_later(self._table.update(names), params)
        elif not self._session.run(self._table.update(names), params).rowcount:
            return False
        self._hold(value)
        return True

    def _drop_all(self, chosen: Executable, at: float, limit: int) -> list[str]:
        """Delete the records whose ids a statement chooses; return the ids."""
        self._session.check_writes()
        rows = self._session.run(chosen, {"at": at, "row_limit": limit}).fetchall()
        ids = [row[0] for row in rows]
        self._drop_where("id", ids)
        return ids

    def _drop_where(self, column: str, among: Sequence[str]) -> None:
        self._session.check_writes()
        if among:
            params = [{f"w_{column}": name} for name in among]
            self._session.run_many(self._table.delete_where(column), params)
            self._session.forget(self._shape.name)

    def _hold(self, value: T, *, read: bool = False) -> None:
        self._session.hold((self._shape.name, self._shape.key_of(value)), value, read=read)

    def _encoded(self, value: T, names: tuple[str, ...]) -> Params:
        return self._table.encoded(value, names)

    def _decoded(self, rows: Sequence[Sequence[Any]]) -> list[T]:
        return [self._table.decoded(row) for row in rows]


class SqlVersioned(SqlRows[T], Versioned[T]):
    """Records whose version grows, and who follows them."""

    @override
    def save_if(self, value: T, version: int, before: T | None = None) -> bool:
        self._session.check_writes()
        shape, key = self._shape, self._shape.key_of(value)
        held: T | None = self._session.held.get((shape.name, key))
        if held is not None:
            return shape.version_of(held) == version and self._update(value)
        names = self._table.values if before is None else self._table.changed(value, before)
        params = {**self._encoded(value, names), **self._table.key_params(key)}
        params[f"w_{shape.version}"] = version
        guarded = self._table.update(names, guarded_by=shape.version)
        if not self._session.run(guarded, params).rowcount:
            return False
        self._hold(value)
        return True

    @override
    def versions(self) -> Mapping[str, int]:
        return dict(self._session.run(sql_queries.versions(*self._followed), {}).fetchall())

    @override
    def changes(self, mark: int, *, counted: bool = False) -> Changes:
        if self._session.statements.dialect == "sqlite":
            versions = self.versions()
            return Changes(None, versions, len(versions))
        statement = sql_queries.changes(*self._followed, since=bool(mark), counted=counted)
        rows = self._session.run(statement, {"mark": mark} if mark else {}).fetchall()
        new_mark, _, _, *total = rows[0]
        versions = {key: version for _, key, version, *_ in rows if key}
        return Changes(new_mark, versions, *total)

    @property
    def _followed(self) -> tuple[Table, str, str]:
        return self._table.table, self._shape.key[0], self._shape.version


class SqlEvents(SqlRows[Event]):
    """Events, which the database numbers."""

    @override
    def add(self, value: Event) -> None:
        self.add_many([value])

    @override
    def add_many(self, values: Sequence[Event]) -> None:
        self._session.check_writes()
        if values:
            for value in values:
                params = self._encoded(value, self._table.values)
                self._session.run_later(self._table.insert(), params)

    @override
    def put(self, value: Event) -> None:
        if value.id is None:
            self.add(value)
        else:
            super().put(value)

    def drop_of(self, operation_ids: Sequence[str]) -> None:
        """Delete the stories of operations."""
        self._drop_where("operation_id", operation_ids)


class SqlDecisions(SqlRows[Decision]):
    """Decisions, which go with their operation."""

    def drop_of(self, operation_ids: Sequence[str]) -> None:
        """Delete why operations went where they did."""
        self._drop_where("operation_id", operation_ids)


class SqlOperations(SqlRows[OperationRecord], Operations):
    """Operations, and the queries of the reaper."""

    def __init__(
        self,
        session: Session,
        table: SqlTable[OperationRecord],
        events: SqlEvents,
        decisions: SqlDecisions,
    ) -> None:
        super().__init__(session, table)
        self._events = events
        self._decisions = decisions

    @override
    def overdue(self, now: float, limit: int) -> list[str]:
        rows = self._session.run(sql_queries.OVERDUE, {"now": now, "row_limit": limit}).fetchall()
        return [row[0] for row in rows]

    @override
    def count_waiting_on(self) -> Mapping[str, int]:
        return dict(self._session.run(sql_queries.WAITING_ON_COUNTS, {}).fetchall())

    @override
    def unanswered(self, before: float, limit: int) -> list[OperationRecord]:
        params = {"before": before, "row_limit": limit}
        ids = [row[0] for row in self._session.run(sql_queries.UNANSWERED, params).fetchall()]
        found = {operation.id: operation for operation in self.where(id=ids)} if ids else {}
        return [found[id_] for id_ in ids if id_ in found]

    @override
    def census(self) -> list[Tally]:
        rows = self._session.run(sql_queries.CENSUS, {}).fetchall()
        return [Tally(kind, OperationState(state), *rest) for kind, state, *rest in rows]

    @override
    def ended_since(self, at: float, limit: int) -> list[str]:
        rows = self._session.run(sql_queries.ENDED_SINCE, {"at": at, "row_limit": limit}).fetchall()
        return [row[0] for row in rows]

    @override
    def drop_ended_before(self, at: float, limit: int) -> int:
        ids = self._drop_all(sql_queries.ENDED_BEFORE, at, limit)
        self._events.drop_of(ids)
        self._decisions.drop_of(ids)
        return len(ids)


class SqlInstances(SqlRows[Instance], Instances):
    """Instances, and sums over them."""

    @override
    def lock_many(self, ids: Iterable[str]) -> dict[str, Instance]:
        self._session.check_writes()
        sorted_ids = sorted(set(ids))
        if not sorted_ids:
            return {}
        params = {"w_keys": self._session.statements.listed(sorted_ids)}
        found = self._found(self._table.select_many(), params, hold=True)
        return {instance.id: instance for instance in found}

    @override
    def usage(self, project_id: str, user_id: str | None = None) -> Mapping[str, int]:
        (row,) = self._owned(sql_queries.USAGE, sql_queries.USAGE_OF_USER, project_id, user_id)
        return dict(zip(("instances", "cores", "memory_mb", "disk_gb"), map(int, row), strict=True))

    @override
    def kinds(
        self, project_id: str, user_id: str | None = None
    ) -> list[tuple[Flavor, Image | None, int]]:
        rows = self._owned(sql_queries.KINDS, sql_queries.KINDS_OF_USER, project_id, user_id)
        return [
            (FLAVOR.decode(flavor), None if image is None else IMAGE.decode(image), int(count))
            for flavor, image, count in rows
        ]

    def _owned(
        self, of_project: Executable, of_user: Executable, project_id: str, user_id: str | None
    ) -> Sequence[Any]:
        """Ask about a project's instances, or about those of one user in it."""
        if user_id is None:
            return self._session.run(of_project, {"project_id": project_id}).fetchall()
        params = {"project_id": project_id, "user_id": user_id}
        return self._session.run(of_user, params).fetchall()

    @override
    def hosts_of_group(self, group: str) -> Mapping[str, int]:
        return dict(self._session.run(sql_queries.HOSTS_OF_GROUP, {"group": group}).fetchall())

    @override
    def drop_deleted_before(self, at: float, limit: int) -> int:
        return len(self._drop_all(sql_queries.DELETED_BEFORE, at, limit))


class SqlHeartbeats(SqlRows[Heartbeat], Heartbeats):
    """When processes and hosts were heard of last."""

    @override
    def silent(self, kind: str, since: float) -> list[str]:
        rows = self._session.run(sql_queries.SILENT, {"kind": kind, "since": since}).fetchall()
        return [row[0] for row in rows]


class SqlRemovals(SqlRows[Removal], Removals):
    """Guests that operations have had removed from hosts."""

    @override
    def drop_before(self, at: float, limit: int) -> int:
        return len(self._drop_all(sql_queries.REMOVED_BEFORE, at, limit))


class SqlOutbox(SqlRows[OutboxRow], Outbox):
    """The transactional outbox."""

    @override
    def older_than(self, at: float, limit: int) -> list[OutboxRow]:
        statement = self._table.select_if("older", sql_queries.OUTBOX_OLDER)
        return self._found(statement, {"at": at, "row_limit": limit}, hold=False)

    @override
    def drop_many(self, ids: Sequence[str]) -> None:
        self._drop_where("id", ids)

    @override
    def oldest_at(self) -> float | None:
        ((at,),) = self._session.run(sql_queries.OUTBOX_OLDEST, {}).fetchall()
        return None if at is None else float(at)


class SqlDeadLetters(SqlRows[DeadLetter], DeadLetters):
    """Messages that could not be handled."""

    @override
    def drop_before(self, at: float, limit: int) -> int:
        return len(self._drop_all(sql_queries.DEAD_BEFORE, at, limit))
