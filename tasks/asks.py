"""What Flower is told of an ask: taken, begun, and ended by its answer rather than by its message.

A host has taken an instruction once it is in its journal; that is not the end of it. So the tasks
of asks are silent by themselves, and these events are sent at the moments that they name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from models.messages.letters import (
    HEARTBEAT,
    MANIFEST,
    PROGRESS,
    REPLY,
    Instruction,
    Letter,
    Token,
)
from tasks.envelope import fault_text

Event = Mapping[str, Any]
SILENT: Final = frozenset({HEARTBEAT, MANIFEST, PROGRESS})
"""Reports that come so often that they would push everything else out of Flower's memory.

How far a copy is shows in the arguments of its operation.
"""


def taken(request: Any, name: str) -> Event:
    """Tell that a message was taken; `request` is Celery's, of the task that runs."""
    return {
        "type": "task-received",
        "uuid": request.id,
        "name": name,
        "args": "()",
        "kwargs": getattr(request, "kwargsrepr", None) or "",
        "root_id": request.root_id,
        "parent_id": request.parent_id,
        "retries": 0,
    }


def begun(instruction: Instruction) -> Event:
    """Tell that a host has begun to carry out an instruction."""
    return {"type": "task-started", "uuid": instruction.token.letter_id}


def answered(letters: Sequence[Letter]) -> list[Event]:
    """Tell the ends of the asks that these letters answer."""
    return [_end(letter.body) for letter in letters if letter.task == REPLY]


def given_up(letter: Mapping[str, Any], reason: str) -> Event:
    """Tell that nobody waits for the answer to an ask any more; `letter` is how it was sent."""
    return {
        "type": "task-failed",
        "uuid": letter["id"],
        "name": letter["task"],
        "args": "()",
        "kwargs": letter["shown"],
        "root_id": letter["root_id"],
        "parent_id": letter["parent_id"],
        "exception": f"GivenUp({reason!r})",
        "traceback": "",
    }


def _end(reply: Mapping[str, Any]) -> Event:
    event = {"uuid": Token(**reply["token"]).letter_id, "traceback": ""}
    outcome, error = reply["outcome"], reply.get("error") or {}
    if outcome == "done":
        return {**event, "type": "task-succeeded", "result": f"done by {reply['sender']}"}
    if outcome == "stale":
        return {**event, "type": "task-revoked", "terminated": False, "expired": False}
    kind = error.get("kind", outcome.capitalize())
    return {**event, "type": "task-failed", "exception": f"{kind}({fault_text(error)!r})"}
