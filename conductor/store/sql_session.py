"""One transaction over a connection: runs statements, knows whether it can still commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, CursorResult, Executable

from conductor.store.shapes import Key
from models.errors import Broken
from models.tables.failures import translated


class Session:
    """What the tables of one transaction share.

    `held` are records that the database is known to have exactly so until the end: written
    here, or read under a lock. Saving over one writes only what differs.
    """

    def __init__(self, connection: Connection, *, writes: bool) -> None:
        self.held: dict[tuple[str, Key], Any] = {}
        self.written_hardware: frozenset[str] = frozenset()
        self.writes = writes
        # SQLite's only writer cannot be overtaken, so whatever it reads is as good as locked.
        self.reads_hold = writes and connection.dialect.name == "sqlite"
        self._connection = connection
        self._failure: BaseException | None = None
        self._open = True

    def run(
        self, statement: Executable, params: dict[str, Any] | Sequence[dict[str, Any]]
    ) -> CursorResult[*tuple[Any, ...]]:
        """Execute; errors as `failures.translated` says, and again at every later use."""
        if not self._open:
            raise Broken("transaction_over", "this transaction has ended")
        self._raise_failure()
        try:
            with translated():
                return self._connection.execute(statement, params)
        except BaseException as error:
            self._failure = error
            raise

    def forget(self, table: str) -> None:
        """Hold nothing of a table: some of it was deleted without being named."""
        self.held = {key: value for key, value in self.held.items() if key[0] != table}

    def check_writes(self) -> None:
        """Raise `Broken` in a transaction that is for reading."""
        if not self.writes:
            raise Broken("transaction_reads", "this transaction is for reading only")

    def close(self) -> None:
        """End the use of the connection; raise again what a caller should not have swallowed.

        PostgreSQL answers the commit of a failed transaction with a silent rollback.
        """
        self._open = False
        self._raise_failure()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Go back to here, failed statements included, when the block raises."""
        self.check_writes()
        self._raise_failure()
        hardware = self.written_hardware
        with translated():
            nested = self._connection.begin_nested()
            try:
                yield
            except BaseException:
                self.held.clear()
                self.written_hardware = hardware
                nested.rollback()
                self._failure = None
                raise
            self._raise_failure()
            nested.commit()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
