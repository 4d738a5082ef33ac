"""The port through which messages leave a process: RabbitMQ in services, a bus in one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from models.messages.internal import OutgoingMessage


class Carrier(Protocol):
    """Takes messages to their queues, at least once."""

    def send(self, outgoing_messages: Sequence[OutgoingMessage]) -> None:
        """Return when every message is safe with the carrier; raise `Unreachable` otherwise.

        After `Unreachable` some may have arrived: message ids are stable, so send all again.
        `data["unsent"]` names those that may not have, `data["unsendable"]` (id to reason) those
        that never will.
        """
