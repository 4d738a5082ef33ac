"""The carrier over RabbitMQ: messages leave as Celery task messages, confirmed by the batch."""

from __future__ import annotations

import json
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from amqp.exceptions import AMQPError
from celery import Celery
from celery.utils.nodenames import anon_nodename
from kombu.exceptions import KombuError

from models.errors import Unreachable
from models.messages.internal import OutgoingMessage
from models.messages.notifications import topic_key
from tasks.broker_accounts import account_of
from tasks.flower.event_stream import EventStream
from tasks.flower.flower_events import SILENT, answered
from tasks.routing import NOTIFICATIONS, exchange_of, is_ours
from tasks.sending.batch_confirms import AmqpMessage, ConfirmingChannel, check

BATCH = 256
CONFIRM_TIMEOUT_S = 5.0

_LOST = (OSError, AMQPError, KombuError)
_NOT_ENCODED = (AMQPError, struct.error, TypeError, ValueError, OverflowError, RecursionError)
_NO_CALLBACKS = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
_PERSISTENT = 2


class CeleryCarrier:
    """Sends messages for any number of threads, each on an AMQP connection of its own.

    A message for one of our queues is a Celery message (protocol 2) on that queue's exchange. It
    names the account that sends it, which the broker verifies: see `accounts`.
    Notices go to the exchange `notifications`, where perhaps nobody listens. Any other queue is
    the reply queue of a caller; nobody keeps such queues for us, so one that is gone is no error.
    Both are plain JSON with the task name as their type.
    """

    def __init__(self, app: Celery, events: EventStream | None = None) -> None:
        """Send through the broker of `app`; `events` shows what was sent to Flower."""
        self._app = app
        self._events = events
        self._origin = anon_nodename()
        self._idle: deque[_Line] = deque()

    def send(self, outgoing_messages: Sequence[OutgoingMessage]) -> None:
        """Return when the broker has every message; raise `Unreachable` otherwise.

        `error.data["unsent"]` lists the ids of those that may not have arrived. A message that no
        queue would take is among them (code `unroutable`, the queues' names in
        `error.data["queues"]`), while the others have left; so is one that AMQP cannot carry, for
        which `error.data["unsendable"]` has the reason. Takes at most about 15 s: a connection,
        and two batches' worth of waiting.
        """
        carried, unsendable = self._carriable(outgoing_messages)
        unroutable: list[str] = []
        for start in range(0, len(carried), BATCH):
            batch = carried[start : start + BATCH]
            try:
                unroutable += self._send_batch(batch)
            except _LOST as error:
                lost = [outgoing.id for outgoing in carried[start:]]
                raise Unreachable(
                    "broker_unreachable",
                    f"the broker has not confirmed {len(lost)} messages: {error}",
                    unsent=[*unroutable, *lost, *unsendable],
                    unsendable=unsendable,
                ) from error
        if unroutable or unsendable:
            raise _left(outgoing_messages, unroutable, unsendable)

    def close(self) -> None:
        """Close the connections that nobody is using."""
        while self._idle:
            self._idle.popleft().close()

    def _carriable(
        self, outgoing_messages: Sequence[OutgoingMessage]
    ) -> tuple[list[OutgoingMessage], dict[str, str]]:
        """Return the messages that AMQP can carry, and by id why it cannot carry the others."""
        carriable, unsendable = [], {}
        for outgoing in outgoing_messages:
            try:
                check(amqp_message(outgoing, self._origin, ""))
            except _NOT_ENCODED as error:
                unsendable[outgoing.id] = f"AMQP cannot carry it ({type(error).__name__})"
            else:
                carriable.append(outgoing)
        return carriable, unsendable

    def _send_batch(self, outgoing_messages: Sequence[OutgoingMessage]) -> list[str]:
        """Publish, once more on a new connection if an idle one turns out to be dead."""
        try:
            line, fresh = self._idle.pop(), False
        except IndexError:
            line, fresh = _Line(self._app), True
        try:
            back = line.publish(outgoing_messages, self._origin)
        except TimeoutError:
            line.drop()
            raise
        except _LOST:
            line.drop()
            if fresh:
                raise
            line = _Line(self._app)
            back = line.publish(outgoing_messages, self._origin)
        self._idle.append(line)
        if self._events is not None:
            self._events.add(
                _sent(outgoing_message)
                for outgoing_message in outgoing_messages
                if _is_shown(outgoing_message)
            )
            self._events.add(answered(outgoing_messages))
        return [outgoing.id for outgoing in outgoing_messages if outgoing.id in back]


def _left(
    outgoing_messages: Sequence[OutgoingMessage],
    unroutable: Sequence[str],
    unsendable: Mapping[str, str],
) -> Unreachable:
    """Return the error that names what has not left, and the queues that nothing reaches."""
    code = "unroutable" if unroutable else "unsendable"
    queues = sorted({outgoing.queue for outgoing in outgoing_messages if outgoing.id in unroutable})
    message = f"no queue takes {len(unroutable)} messages, AMQP not {len(unsendable)}"
    if queues:
        message += f": {', '.join(queues)} is missing or not bound"
    ids = [*unroutable, *unsendable]
    return Unreachable(code, message, unsent=ids, unsendable=unsendable, queues=queues)


def amqp_message(outgoing: OutgoingMessage, origin: str, account: str) -> AmqpMessage:
    """Return the message as AMQP carries it, sent by `account`."""
    if not is_ours(outgoing.queue):
        return _plain(outgoing)
    headers = {
        "lang": "py",
        "task": outgoing.task,
        "id": outgoing.id,
        "root_id": outgoing.root_id or outgoing.id,
        "parent_id": outgoing.parent_id,
        "argsrepr": "()",
        "kwargsrepr": outgoing.shown,
        "origin": origin,
        "ignore_result": True,
    }
    properties = {
        "content_type": "application/json",
        "content_encoding": "utf-8",
        "correlation_id": outgoing.id,
        "delivery_mode": _PERSISTENT,
        "user_id": account,
        "application_headers": headers,
    }
    body = json.dumps(((), dict(outgoing.body), _NO_CALLBACKS), separators=(",", ":")).encode()
    return AmqpMessage(
        outgoing.id, exchange_of(outgoing.queue).name, outgoing.queue, body, properties
    )


def _plain(outgoing: OutgoingMessage) -> AmqpMessage:
    """Return a message for others than our own processes."""
    properties: dict[str, Any] = {"content_type": "application/json", "type": outgoing.task}
    properties["correlation_id"] = outgoing.parent_id or outgoing.id
    body = json.dumps(dict(outgoing.body)).encode()
    key = topic_key(outgoing)
    if key is None:
        return AmqpMessage(outgoing.id, "", outgoing.queue, body, properties, mandatory=False)
    properties["delivery_mode"] = _PERSISTENT
    return AmqpMessage(outgoing.id, NOTIFICATIONS.name, key, body, properties, mandatory=False)


def _is_shown(outgoing: OutgoingMessage) -> bool:
    """Say whether Flower hears of a message: not of callers' own, nor of every host's pulse."""
    return is_ours(outgoing.queue) and outgoing.task not in SILENT


def _sent(outgoing: OutgoingMessage) -> dict[str, Any]:
    return {
        "type": "task-sent",
        "uuid": outgoing.id,
        "root_id": outgoing.root_id or outgoing.id,
        "parent_id": outgoing.parent_id,
        "name": outgoing.task,
        "args": "()",
        "kwargs": outgoing.shown,
        "retries": 0,
        "queue": outgoing.queue,
        "exchange": exchange_of(outgoing.queue).name,
        "routing_key": outgoing.queue,
    }


class _Line:
    """One connection with one confirming channel."""

    def __init__(self, app: Celery) -> None:
        # No heartbeat: nothing reads an idle connection; a dead one is found by the next send.
        options = {"confirm_publish": False}
        self._connection = app.connection_for_write(transport_options=options, heartbeat=0)
        try:
            # Twice, so that another node of a cluster is tried.
            self._connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0)
            self._account = account_of(self._connection)
            self._channel = ConfirmingChannel(self._connection.channel())
        except BaseException:
            self.drop()
            raise

    def publish(self, outgoing_messages: Sequence[OutgoingMessage], origin: str) -> frozenset[str]:
        amqp_messages = [
            amqp_message(outgoing, origin, self._account) for outgoing in outgoing_messages
        ]
        return self._channel.publish(amqp_messages, CONFIRM_TIMEOUT_S)

    def close(self) -> None:
        self._connection.release()

    def drop(self) -> None:
        """Let go of the socket without a farewell that could block."""
        self._connection.collect(socket_timeout=1)
