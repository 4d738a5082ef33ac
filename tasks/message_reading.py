"""What can be shown of any message: its body and headers as text, cut, and without secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from kombu import Message

from models.messages.json_safety import kept, storable
from models.secrets import masked, masked_text
from tasks.message_validation import complaint_of_size
from tasks.wire_decoding import readable

_DEEPEST: Final = 8


def _payload(message: Message) -> Any:
    if complaint_of_size(message) is not None:
        return None
    try:
        return json.loads(message.body or "")
    except (ValueError, RecursionError):
        return None


def keywords_of(message: Message) -> Mapping[str, Any]:
    """Return the keyword arguments of a task, nothing for any other message."""
    match _payload(message):
        case [_, dict() as keywords, *_]:
            return keywords
    return {}


def body_of(message: Message) -> str:
    """Return the keyword arguments where the message is a task, else its bytes as text."""
    payload = _payload(message)
    match payload:
        case [_, dict() as keywords, *_]:
            return storable(json.dumps(masked(keywords)))
    raw: Any = message.body or ""
    text = readable(bytes(raw)) if not isinstance(raw, str) else raw
    if not isinstance(payload, dict | list):
        return storable(masked_text(text))
    safe = masked(payload)
    return storable(text if safe == payload else json.dumps(safe))


def shown_json(value: Any, deep: int = 0) -> Any:
    """Return a value as JSON that a database keeps, without secrets, cut where it is deep."""
    if value is None or isinstance(value, bool | int | float):
        return kept(value)
    if deep > _DEEPEST:
        return "…"
    if isinstance(value, dict):
        return {storable(str(key)): shown_json(item, deep + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [shown_json(item, deep + 1) for item in value]
    if isinstance(value, bytes):
        value = readable(value)
    return storable(masked_text(str(value)))
