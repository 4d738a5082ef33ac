"""How statements reach the driver: those whose answer nobody needs travel with the next one.

PostgreSQL is a way off, and each statement costs the way there and back. Statements that can only
succeed, or whose failure fails the transaction anyway, wait here and are sent ahead of the next
one in the same pipeline; the last ones travel with the COMMIT. SQLite answers in the process, so
nothing waits.

The driver prepares a statement that comes often, and takes it for prepared once it is sent. Behind
one that fails in the same pipeline the server never saw it. So a connection on which anything
failed prepares nothing more, and is thrown away with its transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import psycopg
from sqlalchemy.engine.interfaces import DBAPICursor

Sent: TypeAlias = tuple[str, Any]

COMMIT: Final = "COMMIT"


class Sender:
    """The statements of one transaction, in order, on one connection."""

    def __init__(self, cursor: DBAPICursor) -> None:
        self._cursor = cursor
        connection = getattr(cursor, "connection", None)
        self._far = connection if isinstance(connection, psycopg.Connection) else None
        self._waiting: list[Sent] = []
        self.sent = 0
        """How often anything was sent."""
        self.spoiled = False
        """Whether anything failed: nobody else may have the connection."""

    @property
    def mark(self) -> int:
        """How many statements wait."""
        return len(self._waiting)

    def later(self, text: str, params: Any = ()) -> None:
        """Send a statement ahead of the next one; what it fails with is told there."""
        if self._far is None:
            self.now(text, params)
        else:
            self._waiting.append((text, params))

    def drop(self, mark: int) -> None:
        """Forget the statements that have waited since `mark`."""
        del self._waiting[mark:]

    def now(self, text: str, params: Any = ()) -> DBAPICursor:
        """Send a statement, behind those that wait, and return its answer."""
        self.sent += 1
        with self._watched():
            if not self._waiting or self._far is None:
                self._cursor.execute(text, params)
                return self._cursor
            waiting, self._waiting = self._waiting, []
            # Of several that fail, the first is raised: the others only say that it did.
            with self._far.pipeline(), self._far.cursor() as ahead:
                for operation in waiting:
                    ahead.execute(*operation)
                self._cursor.execute(text, params)
        return self._cursor

    def many(self, text: str, params: Any) -> DBAPICursor:
        """Execute once for each of many parameters; the row count is of all."""
        self.flush()
        self.sent += 1
        with self._watched():
            self._cursor.executemany(text, params)
        return self._cursor

    def flush(self) -> None:
        """Send whatever waits."""
        if self._waiting:
            self.now(*self._waiting.pop())

    def commit(self) -> None:
        """Send whatever waits, and the end of the transaction with it."""
        self.now(COMMIT)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Note that something failed; what still has to run here, to a savepoint, is unprepared."""
        try:
            yield
        except BaseException:
            self.spoiled = True
            if self._far is not None:
                self._far.prepare_threshold = None
            raise
