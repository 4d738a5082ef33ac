"""Statements as the driver takes them: built by SQLAlchemy once, run without it.

Building costs a hundred times what a lookup in SQLite costs, and even cached, SQLAlchemy's own
way from a statement to the driver takes longer than SQLite needs to answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.sql.compiler import SQLCompiler

from conductor.store.codecs import to_text

Params: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement as text, with the order of its parameters where the driver counts them.

    `constants` are the parameters that SQLAlchemy makes of constants.
    """

    text: str
    names: tuple[str, ...] | None
    constants: Params

    def bound(self, params: Params) -> Sequence[Any] | Mapping[str, Any]:
        """Return parameters as the driver takes them."""
        known = {**self.constants, **params} if self.constants else params
        return known if self.names is None else [known[name] for name in self.names]


class Statements:
    """The statements of one store in the dialect of its database."""

    def __init__(self, dialect: sa.Dialect) -> None:
        self.dialect = dialect.name
        self._compiler = dialect
        self._prepared: dict[sa.Executable, Prepared] = {}

    def prepared(self, statement: sa.Executable) -> Prepared:
        """Return the text of a statement; the same object is compiled only once."""
        found = self._prepared.get(statement)
        if found is None:
            assert isinstance(statement, sa.ClauseElement)
            compiled = statement.compile(dialect=self._compiler)
            assert isinstance(compiled, SQLCompiler)
            order = compiled.positiontup
            constants = {k: v for k, v in compiled.params.items() if v is not None}
            names = None if order is None else tuple(order)
            found = Prepared(compiled.string, names, constants)
            self._prepared[statement] = found
        return found

    def among(self, column: sa.ColumnElement[Any], name: str) -> sa.ColumnElement[bool]:
        """Return the test that a column is one of a `listed` parameter, of any length."""
        if self.dialect == "sqlite":
            values = sa.func.json_each(sa.bindparam(name, type_=sa.Text)).table_valued("value")
            return column.in_(sa.select(values.c.value))
        return column == sa.any_(sa.bindparam(name, type_=ARRAY(column.type)))

    def listed(self, values: Iterable[Any]) -> Any:
        """Return the values for an `among` as one parameter."""
        return to_text(list(values)) if self.dialect == "sqlite" else list(values)
