"""What Flower is shown of a dispatch: received, begun, and ended by its reply, not its message.

A host has an instruction once it is in its journal; that is not the end of it. So the tasks
of dispatches are silent by themselves, and these events are sent at the moments that they name.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from models.messages.internal import (
    HEARTBEAT,
    INVENTORY_REPORT,
    PROGRESS,
    REFUSED,
    REGISTRATION,
    REPLY,
    SCHEDULER,
    OutgoingMessage,
    Token,
    answer_to,
    shown_arguments,
)
from tasks.message_validation import fault_text

Event = Mapping[str, Any]
_PULSE: Final[Event] = {
    "type": "worker-heartbeat",
    "freq": 15,
    "active": 0,
    "processed": 0,
    "loadavg": (0, 0, 0),
}
"""Flower takes a host for gone that is not heard of for twice `freq` seconds."""
SILENT: Final = frozenset({HEARTBEAT, REGISTRATION, INVENTORY_REPORT, PROGRESS, REPLY, REFUSED})
"""Reports: of these only what `heard` makes of them is shown.

What their headers say of ids is their sender's word, and most come so often that they would push
everything else out of Flower's memory.
"""


def heard(task: str, body: Mapping[str, Any]) -> list[Event]:
    """Tell what a report says that counts: who lives, what is begun, and how it has ended.

    Nothing of it is named by whom it came from: ids follow from the ask that it answers.
    """
    if task == HEARTBEAT:
        calls = len(body.get("running", ()))  # those that run for long, as copies do
        return [{**_PULSE, "active": calls, "hostname": node_of(body["host"])}]
    if task == PROGRESS and body["percent"] == 0:
        by_host = {"hostname": node_of(body["sender"])}
        return [{**row, **by_host} for row in begun(Token(**body["token"]))]
    if task != REPLY:
        return []
    reply = _answer(body)
    if body["sender"] == SCHEDULER:
        return reply  # its process has shown the end itself
    return [{**_end(body), "hostname": node_of(body["sender"])}, *reply]


def node_of(host: str) -> str:
    """Return the name under which Flower lists a host, whichever process serves it."""
    return f"compute-{host}@{host}"


def begun(token: Token) -> list[Event]:
    """Tell that a host has received an instruction and begun to carry it out."""
    uuid_ = token.message_id
    return [{"type": kind, "uuid": uuid_} for kind in ("task-received", "task-started")]


def _answer(body: Mapping[str, Any]) -> list[Event]:
    """Tell of an answer as a task of its own, which hangs from its ask."""
    token = Token(**body["token"])
    shown = shown_arguments(
        outcome=body["outcome"],
        step=token.step,
        host=body["sender"],
        reason=(body.get("error") or {}).get("message"),
    )
    name = f"{body['sender']}/{token.message_id}"
    event = {"uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, name))}
    received = {"type": "task-received", "name": REPLY, "args": "()", "kwargs": shown, "retries": 0}
    done = {"type": "task-succeeded", "result": "None", "runtime": 0.0}
    return [{**event, **received, **answer_to(token)}, {**event, **done}]


def answered(outgoing_messages: Sequence[OutgoingMessage]) -> list[Event]:
    """Tell the ends of the asks that these messages answer."""
    return [_end(outgoing.body) for outgoing in outgoing_messages if outgoing.task == REPLY]


def given_up(outgoing: Mapping[str, Any], reason: str) -> Event:
    """Tell that nobody waits for the answer to an ask any more; `message` is how it was sent."""
    return {
        "type": "task-failed",
        "uuid": outgoing["id"],
        "name": outgoing["task"],
        "args": "()",
        "kwargs": outgoing["shown"],
        "root_id": outgoing["root_id"],
        "parent_id": outgoing["parent_id"],
        "exception": f"GivenUp({reason!r})",
        "traceback": "",
    }


def _end(reply: Mapping[str, Any]) -> Event:
    event = {"uuid": Token(**reply["token"]).message_id, "traceback": ""}
    outcome, error = reply["outcome"], reply.get("error") or {}
    if outcome == "done":
        return {**event, "type": "task-succeeded", "result": f"done by {reply['sender']}"}
    if outcome == "stale":
        return {**event, "type": "task-revoked", "terminated": False, "expired": False}
    kind = error.get("kind", outcome.capitalize())
    return {**event, "type": "task-failed", "exception": f"{kind}({fault_text(error)!r})"}
