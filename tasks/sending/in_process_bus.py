"""The in-process carrier: queues in memory, for the embedded system and for tests.

It keeps the promises of the broker that our handlers rely on, and breaks the same ones: a
message may come twice, and what a dead consumer had in hand is gone (the reaper asks again).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from models.messages.internal import OutgoingMessage
from models.messages.notifications import topic_key

log = structlog.get_logger(__name__)
Handler = Callable[[OutgoingMessage], None]

IDLE_S: Final = 0.5


class _Queue:
    """Messages in order; a condition of its own, so that a message wakes only its consumers."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.outgoing_messages: deque[OutgoingMessage] = deque()


class InProcessBus:
    """Carries messages between handlers of one process; a message for no queue is kept for it.

    A notice is kept only for those who listen by then, as at a broker.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[str, _Queue] = {}
        self._listening: frozenset[str] = frozenset()
        self.sent = 0

    def send(self, outgoing_messages: Sequence[OutgoingMessage]) -> None:
        """Put messages at the end of their queues."""
        for outgoing in outgoing_messages:
            names = (outgoing.queue,) if topic_key(outgoing) is None else self._listening
            for name in names:
                self._put(name, outgoing)
        self.sent += len(outgoing_messages)

    def listen(self, name: str) -> None:
        """Put every notice that is sent from now on into a queue of this name."""
        with self._lock:
            self._listening |= {name}

    def take(self, name: str, wait_s: float = 0.0) -> OutgoingMessage | None:
        """Return the oldest message of a queue, waiting for one at most `wait_s`."""
        queue = self._queue(name)
        with queue.changed:
            if not queue.outgoing_messages and wait_s > 0:
                queue.changed.wait_for(lambda: bool(queue.outgoing_messages), wait_s)
            return queue.outgoing_messages.popleft() if queue.outgoing_messages else None

    def drop(self, name: str) -> int:
        """Forget what waits in a queue, as if its consumer had died with it; return how many."""
        queue = self._queue(name)
        with queue.changed:
            dropped = len(queue.outgoing_messages)
            queue.outgoing_messages.clear()
            return dropped

    def depths(self) -> dict[str, int]:
        """Return how many messages wait in each queue."""
        return {name: len(queue.outgoing_messages) for name, queue in list(self._queues.items())}

    def _put(self, name: str, outgoing: OutgoingMessage) -> None:
        queue = self._queue(name)
        with queue.changed:
            queue.outgoing_messages.append(outgoing)
            queue.changed.notify()

    def _queue(self, name: str) -> _Queue:
        with self._lock:
            return self._queues.setdefault(name, _Queue())


class Consumer:
    """Threads that take messages of one queue and hand them to a handler, until stopped."""

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
            outgoing = self._bus.take(self._queue, IDLE_S)
            if outgoing is None:
                continue
            try:
                self._handler(outgoing)
            except Exception:  # one bad message must not end the consumer
                log.exception("a message could not be handled", task=outgoing.task, id=outgoing.id)
