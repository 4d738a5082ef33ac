"""One transaction's view of the tables in memory: an undo log to write, an overlay to read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from conductor.store.memory.memory_table import Overlay, Table
from conductor.store.table_metadata import Key
from models.errors import Broken

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
R = TypeVar("R")


class Shelf:
    """What all views of one store share: a short lock, who reads, and what the writer did."""

    def __init__(self) -> None:
        self.still = threading.Lock()
        self.readers: list[View] = []
        self.log: list[tuple[Table[Any], Key, Any]] = []


class View:
    """What one transaction sees and may do.

    The writer changes the tables in place and keeps what was there, so that going back costs
    what was changed and not what is stored. A reader carries an overlay instead: whoever
    changes a record lays what was there before over it, for every reader that began earlier.
    """

    def __init__(self, shelf: Shelf, *, writes: bool) -> None:
        self._shelf = shelf
        self._writes = writes
        self._open = True
        self._hidden: dict[str, dict[Key, Any]] = {}
        if not writes:
            with shelf.still:
                for table, key, before in shelf.log:
                    self.hide(table, key, before)
                shelf.readers.append(self)

    def see(self, table: Table[T], look: Callable[[Overlay[T]], R]) -> R:
        """Return what `look` finds in a table that keeps still meanwhile."""
        self._check_open()
        with self._shelf.still:
            return look(self._hidden.get(table.shape.name, {}))

    def replace(self, table: Table[T], key: Key, value: T | None) -> T | None:
        """Put a record at a key, or nothing, so that it can be undone; return what was there."""
        self.check_writes()
        with self._shelf.still:
            before = table.replace(key, value)
            self._shelf.log.append((table, key, before))
            for reader in self._shelf.readers:
                reader.hide(table, key, before)
        return before

    def check_writes(self) -> None:
        """Raise `Broken` in a transaction that is for reading, or over."""
        self._check_open()
        if not self._writes:
            raise Broken("transaction_reads", "this transaction is for reading only")

    @property
    def mark(self) -> int:
        """Where the undo log is now."""
        return len(self._shelf.log)

    def undo(self, mark: int) -> None:
        """Go back to a mark."""
        with self._shelf.still:
            while len(self._shelf.log) > mark:
                table, key, before = self._shelf.log.pop()
                table.replace(key, before)

    def close(self) -> None:
        """End the transaction; a writer has undone what must not stay."""
        self._open = False
        with self._shelf.still:
            if self._writes:
                self._shelf.log.clear()
            else:
                self._shelf.readers.remove(self)

    def hide(self, table: Table[Any], key: Key, before: Any) -> None:
        """Keep what was there when this reader began; later changes hide behind it."""
        self._hidden.setdefault(table.shape.name, {}).setdefault(key, before)

    def _check_open(self) -> None:
        if not self._open:
            raise Broken("transaction_over", "this transaction has ended")
