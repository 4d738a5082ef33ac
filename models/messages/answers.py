"""What a sender finds on its own queue, the `reply_to` of its request: one answer each."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import Field, WithJsonSchema

from models.errors import ConductorError
from models.messages.base import Versioned
from models.messages.internal import OutgoingMessage

_FAULT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "kind": {
            "type": "string",
            "description": "What to do next: `Rejected`, `NoValidHost`, `Conflict`, "
            "`HostRefused`, `Unreachable` or `Broken`.",
        },
        "code": {"type": "string", "description": "Stable; match this, never the text."},
        "message": {"type": "string", "description": "One sentence for a person."},
        "key": {"type": "string", "description": "The field that is wrong."},
        "data": {"type": "object", "description": "Figures and names that belong to the code."},
    },
    "required": ["kind", "code", "message"],
}
# Faults come from hosts and older releases too; telling a sender must not fail over their shape.
Fault: TypeAlias = Annotated[dict[str, Any], WithJsonSchema(_FAULT)]


class OperationEnded(Versioned):
    """The operation has ended: its result, or its error."""

    task: ClassVar[str] = "conductor.operation_ended"

    operation_id: Annotated[str, Field(description="The id of the request.")]
    kind: Annotated[str, Field(description="Kind of operation: the task without its prefix.")]
    state: Annotated[
        Literal["SUCCEEDED", "FAILED", "CANCELLED", "STUCK"],
        Field(description="`STUCK` waits for an operator."),
    ]
    result: Annotated[dict[str, Any], Field(description="What it brought about, by kind.")] = {}
    error: Annotated[Fault | None, Field(description="Why it did not succeed.")] = None


class RequestRefused(Versioned):
    """The request is no operation of its own: its id belongs to another request."""

    task: ClassVar[str] = "conductor.request_refused"

    operation_id: Annotated[str, Field(description="The id as it was sent.")]
    state: Annotated[
        Literal["REJECTED"], Field(description="No state of an operation: there is none.")
    ] = "REJECTED"
    error: Annotated[Fault, Field(description="Why it was refused.")]


ANSWERS: dict[str, type[Versioned]] = {kind.task: kind for kind in (OperationEnded, RequestRefused)}
"""Name to class of all that is sent to the queue `reply_to`."""


def answer_message(reply_to: str, answer: OperationEnded | RequestRefused) -> OutgoingMessage:
    """Return the message that carries an answer; it is correlated by the id of the request."""
    return OutgoingMessage(
        queue=reply_to,
        task=answer.task,
        body=answer.to_json(),
        root_id=answer.operation_id,
        parent_id=answer.operation_id,
    )


def refusal_message(reply_to: str, operation_id: str, error: ConductorError) -> OutgoingMessage:
    """Return the message that tells a sender why its request became no operation."""
    refused = RequestRefused(operation_id=operation_id[:255], error=error.to_json())
    return answer_message(reply_to, refused)
