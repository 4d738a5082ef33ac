"""One writing transaction at a time, per thread or per process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from models.errors import Broken, Unreachable


class Turns:
    """Who may write. A second transaction inside the first, in one thread, would wait for itself.

    `exclusive` lets one thread at a time write: a queue in the process is cheaper and fairer
    than SQLite's, which sleeps and tries again.
    """

    def __init__(self, *, exclusive: bool, wait_s: float) -> None:
        self._mine = threading.local()
        self._lock = threading.Lock() if exclusive else None
        self._wait_s = wait_s

    @contextmanager
    def take(self) -> Iterator[None]:
        """Hold the turn; `Broken` (`transaction_nested`), `Unreachable` after too long a wait."""
        if getattr(self._mine, "held", False):
            raise Broken(
                "transaction_nested", "a transaction was opened inside another of its thread"
            )
        if self._lock is not None and not self._lock.acquire(timeout=self._wait_s):
            raise Unreachable("database_busy", f"nobody else could write for {self._wait_s:g} s")
        self._mine.held = True
        try:
            yield
        finally:
            self._mine.held = False
            if self._lock is not None:
                self._lock.release()
