"""Reading the dead: any bytes become a record with a reason, in words for a person."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog
from kombu import Message

from conductor.store import DeadLetter
from models.errors import ConductorError, Conflict, Unreachable
from models.ids import is_uuid
from models.messages.internal import CONDUCTOR
from models.messages.json_safety import is_printable, storable
from models.messages.requests import REQUESTS
from models.secrets import masked
from tasks.message_reading import body_of, keywords_of, shown_json
from tasks.wire_decoding import BODY_KEPT

_REASON_KEPT = 1_000
_NAMESPACE = uuid.UUID("5d0c3b64-8f5e-4f0e-9c1b-6a1f2f6f4a10")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """A request that became no operation by itself: whose sender shall hear why."""

    task: str
    id: str
    body: Mapping[str, Any]
    reply_to: str | None


def read_dead_letter(message: Message, now: float) -> DeadLetter:
    """Return the record of a message of the queue `dead_letters`, whatever it holds.

    The same message gives the same id, so that keeping it twice changes nothing. Text that a
    database would refuse (NUL, lone surrogates) is replaced; a body is cut at 256 KiB. Secrets
    are masked: no message that we take has any, so nothing that could be replayed is lost.
    """
    death = _last_death(message.headers)
    queue = str(death.get("queue", ""))
    return _dead_letter(message, queue, _reason(death, queue), str(death.get("time")), now)


def refused_message(message: Message, queue: str, reason: str, now: float) -> DeadLetter:
    """Return the record of a message that `queue` held and nobody takes, for this reason."""
    return _dead_letter(message, queue, reason, "", now)


def keep_dead_letter(keep: Callable[[DeadLetter], None], dead_letter: DeadLetter) -> None:
    """Keep a record, in plain ASCII if it is not taken as it is; raise while the store is away."""
    try:
        keep(dead_letter)
    except (Unreachable, Conflict):
        raise
    except Exception as error:  # noqa: BLE001  # what cannot be kept must not stop the others
        _log.error(
            "a dead letter is kept without its headers", id=dead_letter.id, reason=str(error)
        )
        try:
            keep(_plain(dead_letter))
        except ConductorError:
            raise
        except Exception as again:
            # No message is at fault any more, so it is held like every other.
            raise Unreachable("dead_letter_not_kept", f"no dead letter is kept: {again}") from again


def _plain(dead_letter: DeadLetter) -> DeadLetter:
    texts = (dead_letter.queue, dead_letter.task, dead_letter.reason, dead_letter.body)
    queue, task, reason, body = (
        text.encode("ascii", "backslashreplace").decode() for text in texts
    )
    return replace(dead_letter, queue=queue, task=task, reason=reason, body=body, headers={})


def request_of(dead_letter: DeadLetter, message: Message) -> Request | None:
    """Return what is known of a request that was refused, if anybody can be told of it."""
    task, task_id = message.headers.get("task"), message.headers.get("id")
    if (
        dead_letter.queue != CONDUCTOR
        or dead_letter.task not in REQUESTS
        or dead_letter.task != task
    ):
        return None
    if not isinstance(task_id, str) or not is_uuid(task_id):
        return None
    reply_to = message.properties.get("reply_to")
    answer_to = reply_to if is_printable(reply_to) else None
    return Request(dead_letter.task, task_id, keywords_of(message), answer_to or None)


def _dead_letter(message: Message, queue: str, reason: str, when: str, now: float) -> DeadLetter:
    headers = message.headers if isinstance(message.headers, dict) else {}
    own = {key: value for key, value in headers.items() if not str(key).startswith("x-")}
    task = own.get("task")
    body = body_of(message)
    reason = storable(reason)[:_REASON_KEPT]
    name = json.dumps([queue, when, reason, body, shown_json(own)])
    return DeadLetter(
        id=str(uuid.uuid5(_NAMESPACE, name)),
        at=now,
        queue=storable(queue),
        task=storable(task) if isinstance(task, str) else "",
        reason=reason,
        body=body[:BODY_KEPT],
        headers=shown_json(masked(own)),
    )


def dead_letter_of(request: Any, queue: str, reason: str, now: float) -> DeadLetter:
    """Return the record of a task that was read but could not be handled, for this reason."""
    body = json.dumps(masked(request.kwargs))
    return DeadLetter(
        id=str(uuid.uuid5(_NAMESPACE, f"{request.id}/{queue}/{body}")),
        at=now,
        queue=queue,
        task=request.task,
        reason=storable(reason)[:_REASON_KEPT],
        body=storable(body)[:BODY_KEPT],
        headers=shown_json(
            {"id": request.id, "root_id": request.root_id, "parent_id": request.parent_id}
        ),
    )


def _reason(death: Mapping[str, Any], queue: str) -> str:
    why = death.get("reason")
    if why is None:
        return "it was sent to the dead letters directly"
    if why == "delivery_limit":
        return "given up: every worker that took it died or gave it back"
    if why == "rejected":
        # Ours record themselves what they refuse, and reject nothing.
        return f"whoever reads {queue} rejected it without a word"
    return f"the broker dropped it: {why}"


def _last_death(headers: Mapping[str, Any]) -> Mapping[str, Any]:
    deaths = headers.get("x-death")
    if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict):
        return deaths[0]
    return {}
