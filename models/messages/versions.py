"""Older versions of messages are made current before anything looks at their fields.

A message says its version; one that does not is of version 1, for ever. Its receiver knows one
version, the current one, and for each older one a converter to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from models.errors import Rejected

VERSION_UNSUPPORTED: Final = "version_unsupported"
FIRST: Final = 1

Convert: TypeAlias = Callable[[Mapping[str, Any]], dict[str, Any]]
Converters: TypeAlias = Mapping[tuple[str, int], Convert]

CONVERTERS: Converters = {}
"""(name of a message, version) to what makes such a body one of the next version.

Whoever raises the `current_version` of a message adds its converter here, and the tests' golden
files keep an example of every version that was ever sent. A converter returns a new body and
leaves alone what it does not know: that is refused by name afterwards.
"""


def newer(name: str, body: Mapping[str, Any], current: int) -> Rejected | None:
    """Return why a body is of a version that only a later release understands, if it is."""
    version = _version(body)
    if version is None or version <= current:
        return None
    message = f"version is {version}: {name} is understood up to version {current}"
    return Rejected(VERSION_UNSUPPORTED, message, key="version")


def to_current(
    name: str, body: Mapping[str, Any], current: int, converters: Converters = CONVERTERS
) -> Mapping[str, Any]:
    """Return the body as the current version has it; a version that is none is left to the schema.

    Raises `Rejected` (`version_unsupported`) for a newer version, before its fields are looked at:
    they may well be unknown here and right there. So is an older one that nobody converts.
    """
    refused = newer(name, body, current)
    if refused is not None:
        raise refused
    version = _version(body)
    if version is None or version == current:
        return body
    for older in range(version, current):
        convert = converters.get((name, older))
        if convert is None:
            message = f"version is {version}: {name} is no longer understood before {older + 1}"
            raise Rejected(VERSION_UNSUPPORTED, message, key="version")
        body = convert(body)
    return {**body, "version": current}


def _version(body: Mapping[str, Any]) -> int | None:
    """Return the version that a body claims, or nothing where that is no version at all."""
    version = body.get("version", FIRST)
    is_one = isinstance(version, int) and not isinstance(version, bool) and version >= FIRST
    return version if is_one else None
