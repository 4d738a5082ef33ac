"""What commands read from their arguments."""

from __future__ import annotations

from collections.abc import Iterable

from models.errors import Rejected


def pairs(given: Iterable[str] | None, field: str) -> dict[str, str]:
    """Return `KEY=VALUE` arguments as a mapping; raise `Rejected` for one that is none."""
    found: dict[str, str] = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            message = f"{field} is {text}: should be KEY=VALUE"
            raise Rejected("pair_invalid", message, key=field)
        found[key] = value
    return found
