"""The reply to `SelectHosts`, a pure function of its decisions, so that redelivery repeats it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from conductor.store import Decision
from models.messages.internal import (
    REPLY,
    REPORTS,
    SCHEDULER,
    OutgoingMessage,
    Reply,
    Selected,
    SelectHosts,
    answer_to,
    shown_arguments,
)


def reply_message(message: SelectHosts, decisions: Sequence[Decision]) -> OutgoingMessage:
    """Return the reply that these decisions make; equal decisions make an equal message."""
    token = message.token
    refused = next((decision for decision in decisions if decision.host is None), None)
    if refused is None:
        selected = [
            Selected(
                instance_id=decision.instance_id,
                host=decision.host or "",
                alternates=tuple(decision.detail["alternates"]),
            ).to_json()
            for decision in decisions
        ]
        reply = Reply(token=token, sender=SCHEDULER, outcome="done", result={"selected": selected})
        hosts = dict.fromkeys(decision.host for decision in decisions)
        shown = shown_arguments(
            outcome="done", instances=len(selected), hosts=", ".join(map(str, hosts))
        )
    else:
        error = refused.detail["error"]
        reply = Reply(token=token, sender=SCHEDULER, outcome="failed", error=error)
        shown = shown_arguments(outcome="failed", reason=error["message"])
    name = f"{token.operation_id}/{token.sequence}/reply"
    return OutgoingMessage(
        queue=REPORTS,
        task=REPLY,
        body=reply.to_json(),
        id=str(uuid.uuid5(uuid.NAMESPACE_OID, name)),
        shown=shown,
        **answer_to(token),
    )
