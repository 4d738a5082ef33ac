"""Undelivered messages: which operation waits for a dead letter, and with what error it goes on.

A dead letter proves nothing by itself. It counts only if it is the dispatch that an operation has
out at this moment, or the reply to it by the very host it went to; its body is not trusted.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass
from typing import Any, Final

from conductor.operations.engine.wait_reasons import ON_HOST, ON_SCHEDULER
from conductor.store import DeadLetter, OperationRecord, OutboxRow, UnitOfWork
from models.errors import ConductorError, HostRefused, Unreachable
from models.ids import compute_queue
from models.messages.internal import (
    COMPUTE,
    REPLY,
    REPORTS,
    SCHEDULER,
    SELECT_HOSTS,
    Refusal,
)
from models.messages.json_safety import kept
from models.messages.versions import VERSION_UNSUPPORTED
from models.secrets import masked

UNDELIVERABLE: Final = "undeliverable"
UNSENDABLE: Final = "message_unsendable"

_REASON_KEPT: Final = 1_000
_CODE = re.compile(r"([a-z][a-z_]{2,40}): ")


@dataclass(frozen=True, slots=True)
class Undelivered:
    """The operation that waits, the id of its dispatch, and why no reply will come.

    `began` says that the receiver may have done half of it.
    """

    operation_id: str
    message_id: str
    error: ConductorError
    began: bool


def undelivered(uow: UnitOfWork, outgoing: DeadLetter) -> Undelivered | None:
    """Return what a dead letter means for the operation that waits for it, if one does."""
    if outgoing.queue == REPORTS:
        return _answer(uow, outgoing) if outgoing.task == REPLY else None
    if outgoing.task != SELECT_HOSTS and not outgoing.task.startswith(COMPUTE):
        return None
    record = _waiting_operation(uow, outgoing)
    if record is None:
        return None
    error = _refused(record, outgoing)
    # An instruction of a newer version is refused before anything of it is done. One that was
    # sent before may have met another process, though.
    sent_once = (record.waiting or {}).get("asked", 1) == 1
    began = not (error.code == VERSION_UNSUPPORTED and sent_once) and error.code != UNSENDABLE
    return Undelivered(record.id, _message_of(record)["id"], error, began)


def refused_message(refusal: Refusal, now: float) -> DeadLetter:
    """Return the dead letter of a message that a host or the scheduler has refused.

    Its queue is that of the sender, whom the broker has authenticated, whatever the refusal says.
    """
    sender = refusal.sender
    return DeadLetter(
        id=str(uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(refusal.to_json(), sort_keys=True))),
        at=now,
        queue=SCHEDULER if sender == SCHEDULER else compute_queue(sender),
        task=refusal.refused_task,
        reason=refusal.reason,
        body=refusal.body,
        headers={
            "id": refusal.message_id,
            "root_id": refusal.root_id,
            "parent_id": refusal.parent_id,
        },
    )


def unsendable(row: OutboxRow, why: str) -> DeadLetter:
    """Return the dead letter of a message that no broker takes: nobody has received it."""
    return DeadLetter(
        id=str(uuid.uuid5(uuid.NAMESPACE_OID, f"unsendable/{row.id}")),
        at=row.created_at,
        queue=kept(row.queue),
        task=kept(row.task),
        reason=kept(f"{UNSENDABLE}: {why}"[:_REASON_KEPT]),
        body=kept(json.dumps(masked(dict(row.body)), default=str)),
        headers={"id": row.id, "root_id": row.root_id, "parent_id": row.parent_id},
    )


def _answer(uow: UnitOfWork, outgoing: DeadLetter) -> Undelivered | None:
    """Return what a reply means that this conductor is too old to read.

    Any other fault of a reply may be a forgery of somebody else's, and is left alone.
    """
    sender, parent = _sender(outgoing.body), outgoing.headers.get("parent_id")
    if _code(outgoing.reason) != VERSION_UNSUPPORTED or not sender:
        return None
    on = ON_SCHEDULER if sender == SCHEDULER else ON_HOST + sender
    for record in uow.operations.where(waiting_on=on, ended_at=None):
        if _message_of(record)["id"] == parent:
            host = None if sender == SCHEDULER else sender
            message = f"the answer of {sender} is newer than this conductor: {outgoing.reason}"
            error = Unreachable(VERSION_UNSUPPORTED, message, **({"host": host} if host else {}))
            return Undelivered(record.id, str(parent), error, began=True)
    return None


def _waiting_operation(uow: UnitOfWork, outgoing: DeadLetter) -> OperationRecord | None:
    """Return the operation whose dispatch that is out is this very message."""
    named = outgoing.headers.get("parent_id")
    known = uow.operations.get(named) if isinstance(named, str) else None
    candidates = [known] if known is not None else _waiting_for(uow, outgoing.queue)
    for record in candidates:
        if record.state.ended or record.waiting is None or record.waiting_on is None:
            continue
        sent = _message_of(record)
        key = (sent["id"], sent["queue"], sent["task"])
        if key == (outgoing.headers.get("id"), outgoing.queue, outgoing.task):
            return record
    return None


def _waiting_for(uow: UnitOfWork, queue: str) -> list[OperationRecord]:
    if queue == SCHEDULER:
        return uow.operations.where(waiting_on=ON_SCHEDULER, ended_at=None)
    expected = [on for on in uow.operations.count_waiting_on() if on.startswith(ON_HOST)]
    on = [name for name in expected if compute_queue(name.removeprefix(ON_HOST)) == queue]
    return uow.operations.where(waiting_on=on, ended_at=None) if on else []


def _refused(record: OperationRecord, outgoing: DeadLetter) -> ConductorError:
    code = _code(outgoing.reason) or UNDELIVERABLE
    host = (record.waiting or {}).get("host")
    if host is None:
        return Unreachable(code, f"the scheduler did not take the question: {outgoing.reason}")
    verb = (record.waiting or {}).get("verb")
    message = f"{host} did not take the instruction {verb}: {outgoing.reason}"
    return HostRefused(code, message, host=host)


def _message_of(record: OperationRecord) -> dict[str, Any]:
    outgoing: dict[str, Any] = (record.waiting or {}).get("outgoing") or {"id": None}
    return outgoing


def _code(reason: str) -> str | None:
    found = _CODE.match(reason)
    return found.group(1) if found else None


def _sender(body: str) -> str | None:
    try:
        sender = json.loads(body)["sender"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return sender if isinstance(sender, str) else None
