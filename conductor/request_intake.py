"""Requests as they arrive: masked, checked, then accepted, or kept as dead letters."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

from conductor.operations.engine.acceptance import Incoming, accept
from conductor.operations.engine.transitions import Engine
from conductor.store import DeadLetter, UnitOfWork
from models.errors import ConductorError, Rejected
from models.ids import is_uuid
from models.messages.answers import refusal_message
from models.messages.internal import CONDUCTOR
from models.messages.json_safety import kept, unkeepable
from models.messages.requests import REQUESTS
from models.messages.versions import newer
from models.secrets import masked


def incoming_of(
    task: str,
    operation_id: str,
    body: Mapping[str, Any],
    reply_to: str | None,
    fault: Rejected | None,
) -> Incoming:
    """Return a request with its secrets masked, and with what no database takes replaced."""
    unfit = unkeepable(body)
    shown_id = operation_id if is_uuid(operation_id) else kept(operation_id[:80])
    safe = masked(kept(body) if unfit else body)
    return Incoming(shown_id, task, dict(safe), reply_to, fault or unfit)


def check_id(incoming: Incoming) -> None:
    """Raise `Rejected` (`id_invalid`) for a request whose id cannot be an operation's."""
    if not is_uuid(incoming.id):
        raise Rejected("id_invalid", f"id is {incoming.id}: should be a lower-case UUID", "id")


def accept_request(engine: Engine, incoming: Incoming, uow: UnitOfWork) -> list[str]:
    """Accept a request; one of a newer version is also kept until this conductor is upgraded.

    It has failed for its sender; as a dead letter it can be replayed by a later release.
    """
    kind = REQUESTS.get(incoming.task)
    refused = newer(incoming.task, incoming.body, kind.current_version) if kind else None
    if refused is not None and uow.operations.get(incoming.id) is None:
        uow.dead_letters.add(_dead_letter(uow, incoming, refused))
    return accept(engine, uow, incoming)


def refuse_request(incoming: Incoming, error: ConductorError, uow: UnitOfWork) -> None:
    """Keep a request that is no operation of its own, and answer its sender if that can be."""
    uow.dead_letters.add(_dead_letter(uow, incoming, error))
    if incoming.reply_to:
        uow.post(refusal_message(incoming.reply_to, incoming.id, error))


def _dead_letter(uow: UnitOfWork, incoming: Incoming, error: ConductorError) -> DeadLetter:
    headers = {"id": incoming.id}
    if incoming.reply_to:
        headers["reply_to"] = incoming.reply_to
    return DeadLetter(
        id=str(uuid.uuid4()),
        at=uow.now,
        queue=CONDUCTOR,
        task=incoming.task,
        reason=f"{error.code}: {error.message}",
        body=json.dumps(incoming.body, default=str),
        headers=headers,
    )
