"""The statements of one table, built once, and its records to rows and back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from conductor.store.prefix_query import StartsWith
from conductor.store.sql.sql_statements import Params, Statements
from conductor.store.table_metadata import MANY, Key, Shape

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
Derived: TypeAlias = Mapping[str, Mapping[str, Callable[[Any], Any]]]
"""Columns that are no fields: by the field they are computed from, then by name, and how."""

Tests: TypeAlias = tuple[tuple[str, str], ...]
"""Field names, each with the kind of its test."""

Step: TypeAlias = tuple[str, str, Callable[[Any], Any] | None]
"""A field, the parameter it becomes, and how."""


def insert_into(table: sa.Table, dialect: str) -> sqlite.Insert | postgresql.Insert:
    """Return an INSERT that knows what to do about a taken key."""
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)


class SqlTable(Generic[T]):
    """One table of records in SQL.

    Parameters are called `k_COLUMN` in a key, `v_COLUMN` as a value and `w_COLUMN` in a
    condition, so that two meanings of a column never meet in one statement. Rows end with the
    columns of `also`, which are no fields.
    """

    def __init__(
        self,
        shape: Shape[T],
        table: sa.Table,
        statements: Statements,
        derived: Derived | None = None,
        also: tuple[str, ...] = (),
    ) -> None:
        self.shape = shape
        self.table = table
        self._derived = derived or {}
        self._selected = sa.select(*(table.c[name] for name in (*shape.fields, *also)))
        self._sql = statements
        self._encoders = {
            name: shape.codecs[name].encode for name in shape.fields if name in shape.codecs
        }
        decoders = {
            name: bool for name in shape.fields if isinstance(table.c[name].type, sa.Boolean)
        } | {name: codec.decode for name, codec in shape.codecs.items()}
        self._decoders = tuple(
            (index, decoders[name]) for index, name in enumerate(shape.fields) if name in decoders
        )
        self.values = tuple(name for name in shape.fields if name not in shape.key)
        self._plans: dict[tuple[str, ...], tuple[Step, ...]] = {}
        self._built_before: dict[Any, sa.Executable] = {}

    def encoded(self, value: T, names: tuple[str, ...]) -> Params:
        """Return the values of these fields, and of what is derived from them, as parameters."""
        params: Params = {}
        for name, parameter, encode in self._plan(names):
            item = getattr(value, name)
            params[parameter] = item if encode is None or item is None else encode(item)
        return params

    def decoded(self, row: Sequence[Any]) -> T:
        """Return the record of a row of `select` or `select_where`."""
        values = list(row)
        for index, decode in self._decoders:
            if values[index] is not None:
                values[index] = decode(values[index])
        return self.shape.record(*values)

    def changed(self, value: T, before: T) -> tuple[str, ...]:
        """Return the fields in which a record differs from what the database is known to hold.

        Nested values count as changed unless they are the very same object: 1 and true are
        equal, but not the same JSON.
        """
        pairs = zip(
            self.shape.fields,
            self.shape.values_of(value),
            self.shape.values_of(before),
            strict=True,
        )
        return tuple(
            name
            for name, new, old in pairs
            if new is not old and (name in self.shape.nested or new != old)
        )

    def key_params(self, key: Key) -> Params:
        """Return the parameters of a key."""
        return {f"k_{name}": part for name, part in zip(self.shape.key, key, strict=True)}

    def conditions(self, equals: Mapping[str, Any]) -> tuple[Tests, Params]:
        """Return what `where` asks for: field names with their kind of test, and parameters."""
        self.shape.check_fields(equals)
        tests: list[tuple[str, str]] = []
        params: Params = {}
        for name, criterion in sorted(equals.items()):
            encode: Callable[[Any], Any] = self._encoders.get(name, _same)
            if criterion is None:
                tests.append((name, "absent"))
            elif isinstance(criterion, StartsWith):
                params[f"w_{name}"] = re.sub(r"([\\%_])", r"\\\1", criterion.text) + "%"
                tests.append((name, "begins"))
            elif isinstance(criterion, MANY):
                values = [encode(value) for value in criterion if value is not None]
                params[f"w_{name}"] = self._sql.listed(values)
                tests.append((name, "among or absent" if None in criterion else "among"))
            else:
                params[f"w_{name}"] = encode(criterion)
                tests.append((name, "equal"))
        return tuple(tests), params

    def select(self, *, lock: bool) -> sa.Executable:
        """Return: one record by key, locked or not."""

        def build() -> sa.Executable:
            return _locked(self._selected.where(self._key), lock)

        return self._built(("select", lock), build)

    def select_where(self, tests: Tests, *, limited: bool) -> sa.Executable:
        """Return: records by conditions, oldest first, at most `row_limit` where limited."""

        def build() -> sa.Executable:
            found = self._where(self._selected, tests).order_by(*self._order)
            return found.limit(sa.bindparam("row_limit", type_=sa.Integer)) if limited else found

        return self._built(("where", tests, limited), build)

    def count_where(self, tests: Tests) -> sa.Executable:
        """Return: the number of records by conditions."""

        def build() -> sa.Executable:
            return self._where(sa.select(sa.func.count()).select_from(self.table), tests)

        return self._built(("count", tests), build)

    def select_many(self) -> sa.Executable:
        """Return: records by a list of first key parts (`w_keys`), locked in ascending order."""

        def build() -> sa.Executable:
            column = self.table.c[self.shape.key[0]]
            listed = self._selected.where(self._sql.among(column, "w_keys"))
            return _locked(listed.order_by(column), lock=True)

        return self._built("many", build)

    def select_if(self, name: str, condition: sa.ColumnElement[bool]) -> sa.Executable:
        """Return: records by a condition of that name, oldest first, at most `row_limit`."""

        def build() -> sa.Executable:
            chosen = self._selected.where(condition).order_by(*self._order)
            return chosen.limit(sa.bindparam("row_limit", type_=sa.Integer))

        return self._built(("if", name), build)

    def insert(self) -> sa.Executable:
        """Return: insert a row, or none where the key is taken; the row count tells which."""

        def build() -> sa.Executable:
            names = self.values if self.shape.serial else self.shape.fields
            inserted = (
                insert_into(self.table, self._sql.dialect).values(self._bound(names)).inline()
            )
            if not self.shape.serial:
                # With another unique field, a row that shares it is as much in the way.
                keys = None if self.shape.unique else list(self.shape.key)
                inserted = inserted.on_conflict_do_nothing(index_elements=keys)
            return inserted

        return self._built("insert", build)

    def upsert(self) -> sa.Executable:
        """Return: insert a row or replace the one of the same key."""

        def build() -> sa.Executable:
            bound = self._bound(self.shape.fields)
            inserted = insert_into(self.table, self._sql.dialect).values(bound).inline()
            # `excluded` is SQL's name for the row that could not be inserted.
            replaced = {name: inserted.excluded[name] for name in self._bound(self.values)}
            return inserted.on_conflict_do_update(
                index_elements=list(self.shape.key), set_=replaced
            )

        return self._built("upsert", build)

    def update(self, names: tuple[str, ...], *, guarded_by: str | None = None) -> sa.Executable:
        """Return: change these fields by key, and only where `guarded_by` still equals `w_`."""

        def build() -> sa.Executable:
            updated = sa.update(self.table).where(self._key).values(self._bound(names))
            if guarded_by is None:
                return updated
            return updated.where(self.table.c[guarded_by] == sa.bindparam(f"w_{guarded_by}"))

        return self._built(("update", names, guarded_by), build)

    def delete(self) -> sa.Executable:
        """Return: delete by key."""
        return self._built("delete", lambda: sa.delete(self.table).where(self._key))

    def delete_where(self, column: str) -> sa.Executable:
        """Return: delete where a column is `w_COLUMN`."""

        def build() -> sa.Executable:
            return sa.delete(self.table).where(self.table.c[column] == sa.bindparam(f"w_{column}"))

        return self._built(("delete", column), build)

    def _plan(self, names: tuple[str, ...]) -> tuple[Step, ...]:
        """Return how these fields become parameters; worked out once for the same fields."""
        plan = self._plans.get(names)
        if plan is None:
            own = [(name, f"v_{name}", self._encoders.get(name)) for name in names]
            derived = [
                (name, f"v_{column}", derive)
                for name in names
                for column, derive in self._derived.get(name, {}).items()
            ]
            plan = self._plans[names] = (*own, *derived)
        return plan

    def _bound(self, names: Iterable[str]) -> dict[str, sa.BindParameter[Any]]:
        """Return a parameter for each column that these fields fill."""
        columns = [column for name in names for column in (name, *self._derived.get(name, {}))]
        return {column: sa.bindparam(f"v_{column}") for column in columns}

    @property
    def _key(self) -> sa.ColumnElement[bool]:
        return sa.and_(
            *(self.table.c[name] == sa.bindparam(f"k_{name}") for name in self.shape.key)
        )

    @property
    def _order(self) -> tuple[sa.ColumnElement[Any], ...]:
        return tuple(self.table.c[name] for name in self.shape.order)

    def _where(self, statement: sa.Select[Any], tests: Tests) -> sa.Select[Any]:
        for name, kind in tests:
            statement = statement.where(self._condition(self.table.c[name], f"w_{name}", kind))
        return statement

    def _condition(
        self, column: sa.Column[Any], parameter: str, kind: str
    ) -> sa.ColumnElement[bool]:
        if kind == "absent":
            return column.is_(None)
        if kind == "equal":
            return column == sa.bindparam(parameter)
        if kind == "begins":
            return column.like(sa.bindparam(parameter), escape="\\")
        among = self._sql.among(column, parameter)
        return sa.or_(among, column.is_(None)) if kind == "among or absent" else among

    def _built(self, name: Any, build: Callable[[], sa.Executable]) -> sa.Executable:
        statement = self._built_before.get(name)
        if statement is None:
            statement = self._built_before[name] = build()
        return statement


def _locked(statement: sa.Select[Any], lock: bool) -> sa.Select[Any]:
    # SQLite has no such clause and needs none: its writer is alone.
    return statement.with_for_update() if lock else statement


def _same(value: Any) -> Any:
    return value
