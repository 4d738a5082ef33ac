"""The answer to an ask, made from its decisions: the same decisions make the same letter."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from conductor.store.records import Decision
from models.messages.letters import (
    REPLY,
    REPORTS,
    SCHEDULER,
    Letter,
    Reply,
    Selected,
    SelectHosts,
    answer_to,
    said,
)


def reply_letter(message: SelectHosts, decisions: Sequence[Decision]) -> Letter:
    """Return the answer that these decisions are; the same decisions make the same letter."""
    token = message.token
    refused = next((each for each in decisions if each.host is None), None)
    if refused is None:
        selected = [
            Selected(
                instance_id=each.instance_id,
                host=each.host or "",
                alternates=tuple(each.detail["alternates"]),
            ).to_json()
            for each in decisions
        ]
        reply = Reply(token=token, sender=SCHEDULER, outcome="done", result={"selected": selected})
        hosts = dict.fromkeys(each.host for each in decisions)
        shown = said(outcome="done", instances=len(selected), hosts=", ".join(map(str, hosts)))
    else:
        error = refused.detail["error"]
        reply = Reply(token=token, sender=SCHEDULER, outcome="failed", error=error)
        shown = said(outcome="failed", reason=error["message"])
    name = f"{token.operation_id}/{token.sequence}/reply"
    return Letter(
        queue=REPORTS,
        task=REPLY,
        body=reply.to_json(),
        id=str(uuid.uuid5(uuid.NAMESPACE_OID, name)),
        shown=shown,
        **answer_to(token),
    )
