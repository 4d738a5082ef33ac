"""JSON that can be kept: what is sent as JSON and is none, or no database takes, by path."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from models.errors import Rejected

MAX_DEPTH: Final = 64
"""Levels of lists and objects in a body; nothing of ours has half as many."""

_SHOWN = "\ufffd"
_PATH_SHOWN = 200
_LEAST, _MOST = -(2**63), 2**64 - 1
# UTF-8 has no lone surrogates, PostgreSQL no NUL.
_UNSTORABLE = re.compile("[\\x00\\ud800-\\udfff]")
_NAME_MOST = 100


def is_printable(text: Any) -> bool:
    """Say whether a value is text without control characters, line ends and lone surrogates."""
    return isinstance(text, str) and text.isprintable()


def deeper_than(value: Any, most: int) -> bool:
    """Say whether lists and objects are nested deeper than so many levels, however deep."""
    level = [value]
    for _ in range(most):
        level = [inner for item in level for inner in _inside(item)]
        if not level:
            return False
    return any(isinstance(item, Mapping | list | tuple) for item in level)


def first_no_json(value: Any) -> Any:
    """Return the first value inside that no JSON has, such as a date, or nothing."""
    level = [value]
    while level:
        for item in level:
            if not isinstance(item, Mapping | list | tuple | str | int | float | None):
                return item
        level = [inner for item in level for inner in _inside(item)]
    return None


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def unkeepable(value: Any, path: str = "message", deep: int = 0) -> Rejected | None:
    """Return the refusal of the first value in a body that cannot be kept, or nothing.

    That is NaN and Infinity, which Python reads from text that claims to be JSON; whole numbers
    beyond 64 bits; NUL and lone surrogates, which are JSON, but no text that a database holds;
    and what is nested deeper than 64 levels.
    """
    complaint = _complaint(value, deep)
    if complaint is not None:
        return Rejected("field_invalid", f"{path} {complaint}", path)
    for name, item in _named(value):
        inner = storable(f"{path}.{name}".removeprefix("message."))[:_PATH_SHOWN]
        found = unkeepable(name, inner) or unkeepable(item, inner, deep + 1)
        if found is not None:
            return found
    return None


def _complaint(value: Any, deep: int) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return f"is {value}: JSON has no such number"
    if isinstance(value, int) and not _LEAST <= value <= _MOST:
        return "is a number beyond 64 bits"
    if isinstance(value, str) and (found := _UNSTORABLE.search(value)):
        return f"holds a {'NUL character' if found[0] == chr(0) else 'lone surrogate'}"
    if deep > MAX_DEPTH and isinstance(value, Mapping | list | tuple):
        return f"is nested deeper than {MAX_DEPTH} levels"
    return None


def _named(value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return ((str(key), item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return ((str(place), item) for place, item in enumerate(value))
    return ()


def kept(value: Any, deep: int = 0) -> Any:
    """Return a body as it can be kept: what cannot is replaced by words for it."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not _LEAST <= value <= _MOST:
        return "a number beyond 64 bits"
    if isinstance(value, str):
        return storable(value)
    if deep > MAX_DEPTH:
        return value if value is None or isinstance(value, int | float) else "…"
    if isinstance(value, Mapping):
        return {storable(str(key)): kept(item, deep + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [kept(item, deep + 1) for item in value]
    return value


def storable(text: str) -> str:
    """Return text with NUL and lone surrogates replaced: any database and terminal takes it."""
    return _UNSTORABLE.sub(_SHOWN, text)


def shown_name(name: str) -> str:
    """Return a name that somebody else has given as it can be kept and shown: short, printable."""
    text = "".join(item if item.isprintable() else _SHOWN for item in name[: _NAME_MOST + 1])
    return text if len(text) <= _NAME_MOST else text[:_NAME_MOST] + "…"
