"""JSON that can be kept: what is sent as JSON and is none, or no database takes, by path."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from models.errors import Rejected

_SHOWN = "\ufffd"


def unkeepable(value: Any, path: str = "message") -> Rejected | None:
    """Return the refusal of the first NaN, Infinity or NUL character in a body, or nothing.

    Python reads the first two from text that claims to be JSON; NUL is JSON, but PostgreSQL has
    no text that holds it.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return Rejected("field_invalid", f"{path} is {value}: JSON has no such number", path)
    if isinstance(value, str) and "\0" in value:
        return Rejected("field_invalid", f"{path} holds a NUL character", path)
    if isinstance(value, Mapping):
        for key, each in value.items():
            inner = f"{path}.{key}".removeprefix("message.").replace("\0", _SHOWN)
            found = unkeepable(str(key), inner) or unkeepable(each, inner)
            if found is not None:
                return found
    if isinstance(value, list | tuple):
        for place, each in enumerate(value):
            found = unkeepable(each, f"{path}.{place}".removeprefix("message."))
            if found is not None:
                return found
    return None


def kept(value: Any) -> Any:
    """Return a body as it can be kept: what cannot is replaced by words for it."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return value.replace("\0", _SHOWN)
    if isinstance(value, Mapping):
        return {str(key).replace("\0", _SHOWN): kept(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [kept(each) for each in value]
    return value
