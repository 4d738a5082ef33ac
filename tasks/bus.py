"""The in-process carrier: queues in memory, for the embedded system and for tests.

It keeps the promises of the broker that our handlers rely on, and breaks the same ones: a
letter may come twice, and what a dead consumer had in hand is gone (the reaper asks again).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from models.messages.letters import Letter

log = structlog.get_logger(__name__)
Handler = Callable[[Letter], None]

IDLE_S: Final = 0.5


class InProcessBus:
    """Carries letters between handlers of one process; a letter for no queue is kept for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queues: dict[str, deque[Letter]] = {}
        self.sent = 0

    def send(self, letters: Sequence[Letter]) -> None:
        """Put letters at the end of their queues."""
        with self._changed:
            for letter in letters:
                self._queues.setdefault(letter.queue, deque()).append(letter)
            self.sent += len(letters)
            self._changed.notify_all()

    def take(self, queue: str, wait_s: float = 0.0) -> Letter | None:
        """Return the oldest letter of a queue, waiting for one at most `wait_s`."""
        with self._changed:
            waiting = self._queues.setdefault(queue, deque())
            if not waiting and wait_s > 0:
                self._changed.wait_for(lambda: bool(waiting), wait_s)
            return waiting.popleft() if waiting else None

    def drop(self, queue: str) -> int:
        """Forget what waits in a queue, as if its consumer had died with it; return how many."""
        with self._changed:
            waiting = self._queues.setdefault(queue, deque())
            dropped = len(waiting)
            waiting.clear()
            return dropped

    def depths(self) -> dict[str, int]:
        """Return how many letters wait in each queue."""
        with self._changed:
            return {name: len(waiting) for name, waiting in self._queues.items()}


class Consumer:
    """Threads that take letters of one queue and hand them to a handler, until stopped."""

    def __init__(self, bus: InProcessBus, queue: str, handler: Handler, threads: int = 1) -> None:
        self._bus = bus
        self._queue = queue
        self._handler = handler
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._consume, name=f"{queue}-{number}", daemon=True)
            for number in range(threads)
        ]

    def start(self) -> None:
        """Begin to consume."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Finish what is in hand, take nothing more, and return when all threads are done."""
        self._stopping.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout=10.0)

    def _consume(self) -> None:
        while not self._stopping.is_set():
            letter = self._bus.take(self._queue, IDLE_S)
            if letter is None:
                continue
            try:
                self._handler(letter)
            except Exception:  # noqa: BLE001 - one bad letter must not end the consumer
                log.exception("a letter could not be handled", task=letter.task, id=letter.id)
