"""What a message must look like before anybody runs it, and the words for what it does not."""

from __future__ import annotations

from collections.abc import Container, Mapping
from datetime import UTC, datetime
from typing import Any

from kombu import Message
from kombu.exceptions import ContentDisallowed, DecodeError

from models.ids import is_uuid
from models.messages.json_safety import MAX_DEPTH, deeper_than, first_no_json, is_printable
from models.secrets import shown
from tasks.wire_decoding import MALFORMED

MAX_VALUES = 200_000
"""Values in one body: a small one of many empty lists takes a hundred times as much memory."""

_JSON = "application/json"
_ENCODINGS = ("", "utf-8", "utf8")
_PUBLIC_PREFIX = "conductor."
_FOLLOWED = ("reply_to", "correlation_id", "message_id")
_DEATHS = "x-death"
# The last ones come of the types that kombu reads out of JSON (`{"__type__": …}`).
_UNREADABLE = (
    *(DecodeError, ContentDisallowed, ValueError, LookupError, RecursionError),
    *(TypeError, ArithmeticError, AttributeError),
)


def complaint(message: Message, known: Container[str], now: datetime) -> str | None:
    """Return why `message` is no task that we run, in one line, or nothing.

    `known` are the task names of this queue. What passes has JSON keyword arguments only, an id
    that is a UUID, no time to wait for and nothing to be called afterwards.
    """
    return (
        _complaint_of_content(message)
        or _complaint_of_headers(message.headers, known)
        or _complaint_of_times(message.headers, now)
        or _complaint_of_body(message)
    )


def complaint_of_size(message: Message) -> str | None:
    """Return why a body is not to be decoded: it would become too much, or nothing.

    Counted in its bytes, before anything is built of them: each value comes with one of these.
    """
    raw: Any = message.body or b""
    raw = raw.encode("utf-8", "replace") if isinstance(raw, str) else bytes(raw)
    if sum(raw.count(mark) for mark in (b",", b"[", b"{")) > MAX_VALUES:
        return f"the body holds more than {MAX_VALUES} values"
    return None


def trimmed_headers(headers: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the headers that are followed; others could delay, rename or chain the task.

    What a sender of requests shows of its arguments is not ours to show on: names only.
    """
    public = headers["task"].startswith(_PUBLIC_PREFIX)
    names = ", ".join(sorted(body))[:200] if public else headers.get("kwargsrepr")
    return {
        "lang": headers.get("lang"),
        "task": headers["task"],
        "id": headers["id"],
        "root_id": headers.get("root_id"),
        "parent_id": headers.get("parent_id"),
        "argsrepr": "()",
        "kwargsrepr": f"{{{names}}}" if public else names,
        "origin": headers.get("origin"),
        "ignore_result": True,
    }


def fault_text(fault: Mapping[str, Any]) -> str:
    """Return a fault (`ConductorError.to_json`) as one line: its code and its sentence."""
    return ": ".join(str(fault[part]) for part in ("code", "message") if fault.get(part))


def _complaint_of_content(message: Message) -> str | None:
    malformed = message.properties.get(MALFORMED)
    if malformed is not None:
        return str(malformed)
    if message.content_type != _JSON:
        return f"the content type is {shown(message.content_type)}: only {_JSON} is read"
    encoding = message.content_encoding or ""
    if encoding.lower() not in _ENCODINGS:
        return f"the content encoding is {shown(encoding)}: only utf-8 is read"
    for name in _FOLLOWED:
        text = message.properties.get(name)
        if text is not None and not is_printable(text):
            return f"the property {name} is {shown(text)}: should be printable text"
    return None


def _complaint_of_headers(headers: Mapping[str, Any], known: Container[str]) -> str | None:
    task, task_id = headers.get("task"), headers.get("id")
    if not isinstance(task, str):
        return "the header task is missing: it is no Celery task message (protocol 2)"
    if not isinstance(task_id, str) or not is_uuid(task_id):
        return f"the header id is {shown(task_id)}: should be a UUID"
    if task not in known:
        return f"the task {shown(task)} is not known on this queue"
    for name in ("lang", "root_id", "parent_id", "kwargsrepr", "origin"):
        text = headers.get(name)
        if text is not None and not is_printable(text):
            return f"the header {name} is {shown(text)}: should be printable text"
    deaths = headers.get(_DEATHS, [])
    if not isinstance(deaths, list) or not all(isinstance(death, dict) for death in deaths):
        return f"the header {_DEATHS} is {shown(deaths)}: the broker's own is a list of tables"
    return None


def _complaint_of_times(headers: Mapping[str, Any], now: datetime) -> str | None:
    for name in ("eta", "expires"):
        written = headers.get(name)
        if written is None:
            continue
        try:
            at = datetime.fromisoformat(written)
        except (TypeError, ValueError):
            return f"the header {name} is {shown(written)}: should be a time in ISO 8601"
        due = (at if at.tzinfo else at.replace(tzinfo=UTC)) > now
        if name == "eta" and due:
            return f"it asks to wait until {shown(written)}: send it when it is due"
        if name == "expires" and not due:
            return f"it expired at {shown(written)} before it was taken"
    return None


def _complaint_of_body(message: Message) -> str | None:
    too_much = complaint_of_size(message)
    if too_much is not None:
        return too_much
    try:
        payload = message.payload
    except _UNREADABLE as error:
        return f"the body is not JSON: {error}"[:300]
    if not isinstance(payload, list) or len(payload) != 3:
        return "the body is no list of arguments, keyword arguments and callbacks"
    arguments, keywords, callbacks = payload
    if arguments != []:
        return "it has positional arguments: only keyword arguments are read"
    if not isinstance(keywords, dict):
        return "its keyword arguments are no JSON object"
    if isinstance(callbacks, dict) and any(callbacks.values()):
        return "it asks to call another task afterwards (callbacks, errbacks, chain or chord)"
    if not isinstance(callbacks, dict | None):
        return "its callbacks are no JSON object"
    if deeper_than(keywords, MAX_DEPTH):
        return f"the body is nested deeper than {MAX_DEPTH} levels"
    if (odd := first_no_json(keywords)) is not None:
        return f"the body is not JSON: it holds a {type(odd).__name__}"
    return None
