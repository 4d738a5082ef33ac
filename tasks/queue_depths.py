"""How much waits in the broker's queues, asked without changing anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from amqp.exceptions import AMQPError, NotFound
from celery import Celery
from kombu import Connection
from kombu.exceptions import KombuError

from models.errors import Unreachable
from models.ids import compute_queue
from models.messages.internal import CONDUCTOR, DEAD_LETTERS, REPORTS, SCHEDULER

ROLE_QUEUES = (CONDUCTOR, SCHEDULER, REPORTS, DEAD_LETTERS)
_TIMEOUT_S = 3


@dataclass(frozen=True, slots=True)
class Depth:
    """Messages of a queue that nobody has taken, and how many consumers it has."""

    messages: int
    consumers: int


def queue_depths(app: Celery, hosts: Iterable[str] = ()) -> Mapping[str, Depth]:
    """Return the depths of our queues and of those of `hosts`, without what is not declared.

    Costs a connection and a round trip a queue; raises `Unreachable` when the broker is.
    """
    names = (*ROLE_QUEUES, *(compute_queue(host) for host in hosts))
    with app.connection_for_read(heartbeat=0) as connection:
        try:
            connection.ensure_connection(max_retries=1, timeout=_TIMEOUT_S)
            return _depths(connection, names)
        except (OSError, AMQPError, KombuError) as error:
            where = connection.as_uri()
            raise Unreachable("broker_unreachable", f"{where}: {error}") from error


def _depths(connection: Connection, names: Iterable[str]) -> dict[str, Depth]:
    found: dict[str, Depth] = {}
    channel: Any = connection.channel()
    for name in names:
        try:
            answer = channel.queue_declare(name, passive=True)
        except NotFound:
            # The broker has closed the channel.
            channel = connection.channel()
        else:
            found[name] = Depth(answer.message_count, answer.consumer_count)
    return found
