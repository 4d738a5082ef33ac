"""Publishing in batches: send all, then wait once until the broker has confirmed every one.

Waiting for each confirm costs a round trip a message, the greatest cost of publishing; the client
library does only that, so the counting is done here, on its channels.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import amqp
from amqp.serialization import dumps

LARGEST_BYTES = 16 * 1024 * 1024
"""What RabbitMQ 4 takes by default; a larger message costs the channel, not only itself."""


@dataclass(frozen=True, slots=True)
class AmqpMessage:
    """A message as AMQP carries it; `id` tells it from others of its batch when it comes back.

    `mandatory` asks the broker to return what no queue would take, instead of dropping it.
    """

    id: str
    exchange: str
    routing_key: str
    body: bytes
    properties: Mapping[str, Any]
    mandatory: bool = True


def check(amqp_message: AmqpMessage) -> None:
    """Raise whatever the client library would on sending this, or `ValueError` if it is too large.

    Found out while it is sent, it would take the connection, and the others of its batch, along.
    """
    if len(amqp_message.body) > LARGEST_BYTES:
        raise ValueError(
            f"{len(amqp_message.body)} bytes, and brokers take {LARGEST_BYTES} at most"
        )
    # The library would let lone surrogates through, which kill whoever decodes them.
    json.dumps(
        [amqp_message.properties, amqp_message.routing_key, amqp_message.id], ensure_ascii=False
    ).encode()
    dumps("sss", (amqp_message.exchange, amqp_message.routing_key, amqp_message.id))
    # py-amqp offers no public way to encode without sending.
    content: Any = amqp.Message(
        amqp_message.body, message_id=amqp_message.id, **amqp_message.properties
    )
    content._serialize_properties()  # noqa: SLF001  # as said above


class ConfirmingChannel:
    """A channel in confirm mode, for one thread at a time."""

    def __init__(self, channel: Any) -> None:
        """Take a fresh channel of a connection that does not confirm by itself."""
        self._channel = channel
        self._sent = 0
        self._open: set[int] = set()
        self._refused: set[int] = set()
        self._returned: set[str] = set()
        channel.confirm_select()
        channel.events["basic_ack"].add(self._on_ack)
        channel.events["basic_nack"].add(self._on_nack)
        channel.events["basic_return"].add(self._on_return)

    def publish(self, amqp_messages: Sequence[AmqpMessage], timeout_s: float) -> frozenset[str]:
        """Return the ids of what came back (no queue, or refused); the rest is safe.

        Raises the connection's or channel's errors, `TimeoutError` included, when the broker
        does not answer for all of them within `timeout_s`; the channel is of no use afterwards.
        """
        deadline = time.monotonic() + timeout_s
        self._refused.clear()
        self._returned.clear()
        first = self._sent + 1
        for amqp_message in amqp_messages:
            self._send(amqp_message, timeout_s)
        while self._open:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"{len(self._open)} messages are not confirmed")
            self._channel.connection.drain_events(timeout=left_s)
        return frozenset(self._returned | {amqp_messages[tag - first].id for tag in self._refused})

    def _send(self, amqp_message: AmqpMessage, timeout_s: float) -> None:
        message = amqp.Message(
            amqp_message.body, message_id=amqp_message.id, **amqp_message.properties
        )
        self._sent += 1
        self._open.add(self._sent)
        self._channel.basic_publish(
            message,
            exchange=amqp_message.exchange,
            routing_key=amqp_message.routing_key,
            mandatory=amqp_message.mandatory,
            timeout=timeout_s,
        )

    def _on_ack(self, tag: int, multiple: bool) -> None:
        self._open -= self._answered(tag, multiple)

    def _on_nack(self, tag: int, multiple: bool) -> None:
        answered = self._answered(tag, multiple)
        self._refused |= answered
        self._open -= answered

    def _on_return(self, _error: Exception, _exchange: str, _key: str, message: Any) -> None:
        self._returned.add(message.properties["message_id"])

    def _answered(self, tag: int, multiple: bool) -> set[int]:
        return {number for number in self._open if number <= tag} if multiple else {tag}
