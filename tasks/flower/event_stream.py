"""Celery events of our own, for Flower: apart from the work, and dropped rather than late."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import amqp
import structlog
from amqp.exceptions import AMQPError
from celery import Celery
from celery.events.event import group_from
from celery.utils.time import utcoffset
from kombu.clocks import LamportClock
from kombu.exceptions import KombuError

_BATCH = 100
_KEPT = 10_000
_RETRY_S = 5.0
_WRITE_S = 5.0
_TRANSIENT = 1

_log = structlog.get_logger(__name__)


class EventStream:
    """Publishes events from a daemon thread with a connection of its own.

    At most 10,000 wait; when the broker is away or forbids events, the oldest are dropped.
    """

    def __init__(self, app: Celery, node: str) -> None:
        """Speak as `node`, the name under which Flower lists the process."""
        self._app = app
        self._node = node
        self._clock = LamportClock()
        self._waiting: deque[Mapping[str, Any]] = deque(maxlen=_KEPT)
        self._awake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()

    def add(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Pass events on, each with `type` and its fields; never blocks, never fails."""
        common = {
            "hostname": self._node,
            "utcoffset": utcoffset(),
            "pid": os.getpid(),
            "timestamp": time.time(),
        }
        for event in events:
            self._waiting.append({**common, "clock": self._clock.forward(), **event})
        self._awake.set()

    def close(self, timeout_s: float = 1.0) -> None:
        """Publish what waits, for `timeout_s` at most, and end."""
        self._stopping = True
        self._awake.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._publish_while_connected()
            except (OSError, AMQPError, KombuError) as error:
                _log.info("events are not shown for now", reason=str(error))
                self._rest()

    def _rest(self) -> None:
        until = time.monotonic() + _RETRY_S
        while not self._stopping and time.monotonic() < until:
            time.sleep(0.1)

    def _publish_while_connected(self) -> None:
        options = {"confirm_publish": False}
        with self._app.connection_for_write(transport_options=options, heartbeat=0) as connection:
            connection.connect()
            channel = connection.channel()
            while not self._stopping or self._waiting:
                self._awake.wait()
                self._awake.clear()
                while self._waiting:
                    self._publish_some(channel)

    def _publish_some(self, channel: Any) -> None:
        """Publish one batch a group, as `task.multi` or `worker.multi`."""
        groups: dict[str, list[Mapping[str, Any]]] = {}
        for _ in range(min(_BATCH, len(self._waiting))):
            event = self._waiting.popleft()
            groups.setdefault(group_from(event["type"]), []).append(event)
        for group, events in groups.items():
            message = amqp.Message(
                json.dumps(events, default=str).encode(),
                content_type="application/json",
                content_encoding="utf-8",
                delivery_mode=_TRANSIENT,
                application_headers={"hostname": self._node},
            )
            exchange = self._app.conf.event_exchange
            channel.basic_publish(message, exchange, f"{group}.multi", timeout=_WRITE_S)


class Silence(EventStream):
    """The stream of a host: it tells nothing, since nobody could know whether it is true.

    The conductor tells what hosts do, once it knows whose word it is: see `asks.heard`.
    """

    def __init__(self) -> None:
        """Need no broker."""

    def add(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Do nothing."""

    def close(self, timeout_s: float = 1.0) -> None:
        """Do nothing."""


class WorkerEvents:
    """An `EventStream` in the shape of the dispatcher that Celery's worker expects."""

    enabled = True
    connection = None

    def __init__(self, stream: EventStream) -> None:
        """Speak through `stream`."""
        self._stream = stream
        self.on_enabled: set[Any] = set()
        self.on_disabled: set[Any] = set()

    def send(self, type: str, retry: bool = True, **fields: Any) -> None:  # noqa: A002, ARG002  # Celery's names
        """Send one event."""
        self._stream.add([{"type": type, **fields}])

    def flush(self) -> None:
        """Nothing is kept back here."""
