"""One transaction over a connection: runs statements, knows whether it can still commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy import Executable
from sqlalchemy.engine.interfaces import DBAPICursor

from conductor.store.sql.sql_pipeline import Sender
from conductor.store.sql.sql_statements import Params, Statements
from conductor.store.table_metadata import Key
from models.errors import Broken
from models.tables.database_errors import meaning

R = TypeVar("R")

# 64 bits of the name: that two names share them costs waiting, and happens to nobody.
_LOCK: Final = sa.select(
    sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(sa.bindparam("name", type_=sa.Text), 0))
)


class Session:
    """What the tables of one transaction share.

    `held` are records that the database is known to have until the end, whoever else writes:
    written here, or read under a lock. Saving over one writes only what differs. Those in
    `read` are as they came back, so that asking again needs no statement.
    """

    def __init__(self, cursor: DBAPICursor, statements: Statements, *, writes: bool) -> None:
        self.statements = statements
        self.held: dict[tuple[str, Key], Any] = {}
        self.read: set[tuple[str, Key]] = set()
        self.written_hardware: frozenset[str] = frozenset()
        self.writes = writes
        # SQLite's only writer cannot be overtaken, so whatever it reads is as good as locked.
        self.reads_hold = writes and statements.dialect == "sqlite"
        self._sender = Sender(cursor)
        self._failure: BaseException | None = None
        self._savepoints = 0
        self._open = True

    def run(self, statement: Executable, params: Params) -> DBAPICursor:
        """Execute; errors as `failures.meaning` says, and again at every later use."""
        prepared = self.statements.prepared(statement)
        return self._execute(prepared.text, prepared.bound(params))

    def run_later(self, statement: Executable, params: Params) -> None:
        """Execute at the latest with the commit, in order; for what can only succeed.

        An error is raised by whatever statement it travels with, and fails the transaction.
        """
        prepared = self.statements.prepared(statement)
        self._later(prepared.text, prepared.bound(params))

    def run_many(self, statement: Executable, params: Sequence[Params]) -> DBAPICursor:
        """Execute once for each of many parameters; the row count is of all."""
        if len(params) == 1:
            return self.run(statement, params[0])
        prepared = self.statements.prepared(statement)
        return self._execute(prepared.text, [prepared.bound(param) for param in params], many=True)

    def hold(self, name: tuple[str, Key], value: Any, *, read: bool) -> None:
        """Hold a record as it was read or written."""
        if not read:
            self.read.discard(name)
        elif name in self.read:
            # The first copy stays: what callers derive from it shares its nested values.
            return
        else:
            self.read.add(name)
        self.held[name] = value

    def let_go(self, name: tuple[str, Key]) -> None:
        """Hold a record no longer."""
        self.held.pop(name, None)
        self.read.discard(name)

    def forget(self, table: str) -> None:
        """Hold nothing of a table: some of it was deleted without being named."""
        self.held = {key: value for key, value in self.held.items() if key[0] != table}
        self.read &= self.held.keys()

    def lock(self, name: str) -> None:
        """Let what follows wait for whoever locked the name; SQLite's only writer is alone."""
        self.check_writes()
        if self.statements.dialect != "sqlite":
            self.run_later(_LOCK, {"name": name})

    def check_writes(self) -> None:
        """Raise `Broken` in a transaction that is for reading."""
        if not self.writes:
            raise Broken("transaction_reads", "this transaction is for reading only")

    @property
    def spoiled(self) -> bool:
        """Whether anything failed at the database, even where a savepoint made it harmless."""
        return self._sender.spoiled

    def commit(self) -> None:
        """End the transaction for good; raise again what a caller should not have swallowed.

        PostgreSQL answers the commit of a failed transaction with a silent rollback.
        """
        self.end()
        self._raise_failure()
        self._sender.commit()

    def end(self) -> None:
        """Refuse whatever comes now."""
        self._open = False

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Go back to here, failed statements included, when the block raises."""
        self.check_writes()
        hardware = self.written_hardware
        self._savepoints += 1
        name = f"s{self._savepoints}"
        mark, sent = self._sender.mark, self._sender.sent
        self._later(f"SAVEPOINT {name}")
        try:
            yield
        except BaseException:
            self.held.clear()
            self.read.clear()
            self.written_hardware = hardware
            self._go_back(name, mark, sent)
            raise
        self._later(f"RELEASE SAVEPOINT {name}")

    def _go_back(self, name: str, mark: int, sent: int) -> None:
        """Undo what came since a savepoint; nothing has to be where nothing of it was sent."""
        if self._sender.sent == sent:
            self._sender.drop(mark)
            return
        self._sender.drop(0)
        failure, self._failure = self._failure, None
        try:
            self._execute(f"ROLLBACK TO SAVEPOINT {name}")
            self._execute(f"RELEASE SAVEPOINT {name}")
        except BaseException:
            # What failed travelled ahead of the savepoint: there is no going back to it.
            self._failure = failure or self._failure
            self._raise_failure()
            raise

    def _later(self, text: str, params: Any = ()) -> None:
        self._call(self._sender.later, text, params)

    def _execute(self, text: str, params: Any = (), *, many: bool = False) -> DBAPICursor:
        return self._call(self._sender.many if many else self._sender.now, text, params)

    def _call(self, send: Callable[[str, Any], R], text: str, params: Any) -> R:
        if not self._open:
            raise Broken("transaction_over", "this transaction has ended")
        self._raise_failure()
        try:
            return send(text, params)
        except BaseException as error:
            meant = meaning(error)
            self._failure = meant or error
            if meant is None:
                raise
            raise meant from error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
