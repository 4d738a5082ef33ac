"""Refusing a message for good where no store is: the conductor is told, and keeps it.

Not left to the broker: RabbitMQ 3.10 stops dead-lettering for a whole node over a header `x-death`
that it did not make itself, and nobody would hear of the message that waits for an answer.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kombu import Message

from models.messages.internal import (
    MOST_REASON,
    MOST_REFUSED_BODY,
    REFUSED,
    REPORTS,
    OutgoingMessage,
    Refusal,
)
from models.messages.json_safety import storable
from models.secrets import masked
from tasks.message_reading import body_of

Send: TypeAlias = Callable[[Sequence[OutgoingMessage]], object]
"""Sends messages and returns once the broker has them; raises `Unreachable` while it has not."""

_MOST_NAME: Final = 200


@dataclass(frozen=True, slots=True)
class Refusals:
    """Tells the conductor what `sender` refuses; the message may be acknowledged afterwards."""

    send: Send
    sender: str

    def of_message(self, message: Message, _queue: str, reason: str) -> None:
        """Tell of a message that could not be read as a task, or is none that is known."""
        headers = message.headers if isinstance(message.headers, dict) else {}
        self._report(headers.get("task"), headers, reason, body_of(message))

    def of_task(self, request: Any, reason: str) -> None:
        """Tell of a task that was read and means nothing, or whose handler failed."""
        ids = {"id": request.id, "root_id": request.root_id, "parent_id": request.parent_id}
        self._report(request.task, ids, reason, json.dumps(masked(request.kwargs)))

    def _report(self, task: object, ids: dict[str, Any], reason: str, body: str) -> None:
        refusal = Refusal(
            sender=self.sender,
            reason=storable(reason)[:MOST_REASON],
            refused_task=_text(task) or "",
            message_id=_text(ids.get("id")),
            root_id=_text(ids.get("root_id")),
            parent_id=_text(ids.get("parent_id")),
            body=storable(body)[:MOST_REFUSED_BODY],
        )
        report = refusal.to_json()
        # The same message refused twice is one dead letter.
        name = json.dumps(report, sort_keys=True)
        self.send([OutgoingMessage(REPORTS, REFUSED, report, str(uuid.uuid5(_NAMESPACE, name)))])


_NAMESPACE: Final = uuid.UUID("f5b1f2f4-3c4e-4b52-8a39-0d1f0f6b7f5c")


def _text(value: object) -> str | None:
    return storable(value)[:_MOST_NAME] if isinstance(value, str) else None
