"""What really goes over the broker: a queue that gets a copy of every message, and its octets."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from celery.events.event import event_exchange
from kombu import Connection, Queue

from tasks.routing import EXCHANGE, INTERNAL_EXCHANGE, NOTIFICATIONS, REPORTS_EXCHANGE

NOTICE, EVENT = "notice", "event"
_PATIENCE_S = 0.5


@dataclass(frozen=True)
class Traffic:
    """Messages and the bytes of their bodies, by label; notices and Flower's events apart."""

    messages: Counter[str] = field(default_factory=Counter)
    body_bytes: Counter[str] = field(default_factory=Counter)


class Tap:
    """A queue bound to all exchanges; once read it is gone."""

    def __init__(self, connection: Connection) -> None:
        self._channel = connection.channel()
        self._queue = Queue(exclusive=True)(self._channel)
        self._queue.queue_declare()
        for exchange in (
            EXCHANGE,
            INTERNAL_EXCHANGE,
            REPORTS_EXCHANGE,
            NOTIFICATIONS,
            event_exchange,
        ):
            self._queue.bind_to(exchange.name, routing_key="#")

    def traffic(self, labels: Mapping[str, str]) -> Traffic:
        """Return what has come, by the label of the operation it belongs to, and drop the queue.

        What belongs to none of them, such as hosts' pulses, is left out.
        """
        found = Traffic()
        for message in iter(self._queue.get, None):
            message.ack()
            info = message.delivery_info
            if info["exchange"] == NOTIFICATIONS.name:
                label: str | None = NOTICE
            elif info["exchange"] == event_exchange.name:
                label = EVENT if info["routing_key"].startswith("task") else None
            else:
                label = labels.get(message.headers.get("root_id", ""))
            if label is not None:
                found.messages[label] += 1
                found.body_bytes[label] += len(message.body)
        self._queue.delete()
        self._channel.close()
        return found


class Ears:
    """Hears notices, as any other service may."""

    def __init__(self, connection: Connection) -> None:
        queue = Queue("listener", NOTIFICATIONS, routing_key="#", exclusive=True, no_ack=True)
        self._notices = connection.SimpleQueue(queue, no_ack=True)

    def hear(self) -> dict[str, Any] | None:
        """Return the body of the next notice, or nothing when none comes for a moment."""
        try:
            message = self._notices.get(timeout=_PATIENCE_S)
        except self._notices.Empty:
            return None
        body: dict[str, Any] = json.loads(message.body)
        return body


def octets(broker_url: str, control: str) -> tuple[int, int]:
    """Return what the broker has received from and sent to the open connections of a vhost.

    Everything counts: frames, headers, confirms, acknowledgements, heartbeats.
    """
    received = sent = 0
    for line in _connections(control):
        vhost, came, went = line.split("\t")
        if vhost == urlsplit(broker_url).path.lstrip("/"):
            received += int(came)
            sent += int(went)
    return received, sent


def _connections(control: str) -> Iterator[str]:
    asked = ["-q", "--no-table-headers", "list_connections", "vhost", "recv_oct", "send_oct"]
    command = [*shlex.split(control), *asked]
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    yield from told.stdout.splitlines()
