"""What whoever listens is told of every operation on an instance: its beginning and its end."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, WithJsonSchema

from models.lifecycle import InstanceState, OperationState
from models.messages.base import Message, Versioned
from models.messages.internal import OutgoingMessage

TOPIC: Final = "notifications"
"""The exchange; a message for it has the queue name `notifications.<kind>.<event>`."""


# The words in place of a name for them: every message is described by itself.
_INSTANCE_STATES: Final = WithJsonSchema({"type": "string", "enum": list(InstanceState)})
_OPERATION_STATES: Final = WithJsonSchema({"type": "string", "enum": list(OperationState)})


class NotifiedInstance(Message):
    """The instance as the transaction leaves it that tells of it."""

    id: Annotated[str, Field(description="Its id.")]
    name: Annotated[str, Field(description="Its name.")]
    state: Annotated[InstanceState, _INSTANCE_STATES, Field(description="What it is now.")]
    host: Annotated[str | None, Field(description="Where it is, if anywhere.")] = None


class NotifiedError(Message):
    """Why an operation did not succeed."""

    code: Annotated[str, Field(description="Stable; match this, never the text.")]
    message: Annotated[str, Field(description="One sentence for a person.")]


class OperationNotified(Versioned):
    """An operation on an instance has been accepted, or has ended."""

    task: ClassVar[str] = "conductor.operation_notified"

    at: Annotated[float, Field(description="When, in Unix seconds.")]
    event: Annotated[
        Literal["start", "end", "error"],
        Field(description="Accepted; succeeded; ended in any other state."),
    ]
    operation_id: Annotated[str, Field(description="The operation.")]
    kind: Annotated[str, Field(description="Kind of operation.")]
    state: Annotated[OperationState, _OPERATION_STATES, Field(description="The operation's state.")]
    project_id: Annotated[str, Field(description="Who asked: the project.")]
    user_id: Annotated[str, Field(description="Who asked: the user.")] = ""
    request_id: Annotated[str, Field(description="The sender's own id.")] = ""
    instance: Annotated[
        NotifiedInstance | None, Field(description="Absent when it has no record any more.")
    ] = None
    error: Annotated[NotifiedError | None, Field(description="Absent unless it failed.")] = None


NOTICES: Final[dict[str, type[Versioned]]] = {OperationNotified.task: OperationNotified}
"""Name to class of all that goes to the exchange `notifications`."""


def notification_message(notice: OperationNotified) -> OutgoingMessage:
    """Return the message for a notification; its id tells a repeated one from a new one."""
    return OutgoingMessage(
        queue=f"{TOPIC}.{notice.kind}.{notice.event}",
        task=notice.task,
        body=notice.to_json(),
        parent_id=notice.operation_id,
    )


def topic_key(outgoing: OutgoingMessage) -> str | None:
    """Return the routing key of a message that is for listeners, nothing for any other.

    Its task counts too: a caller may name its reply queue as it likes.
    """
    place, _, key = outgoing.queue.partition(".")
    return key if place == TOPIC and outgoing.task in NOTICES else None
