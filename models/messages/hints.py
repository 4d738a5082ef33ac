"""Scheduler hints: what a sender says about the hosts of other instances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from models.errors import Rejected


@dataclass(frozen=True, slots=True)
class Hints:
    """What the sender hints about hosts: instances to be with, or apart from."""

    with_instances: tuple[str, ...] = ()
    apart_from: tuple[str, ...] = ()
    domain: str | None = None


def hints_of(hints: Mapping[str, Any]) -> Hints:
    """Return the hints of a request's `scheduler_hints`: an id or a list of ids each.

    Raises `Rejected` (`hint_invalid`) for anything else.
    """
    domain = hints.get("domain")
    return Hints(
        _ids(hints, "same_host"),
        _ids(hints, "different_host"),
        None if domain is None else str(domain),
    )


def _ids(hints: Mapping[str, Any], hint: str) -> tuple[str, ...]:
    value = hints.get(hint)
    if value is None:
        return ()
    ids = [value] if isinstance(value, str) else value
    if isinstance(ids, list | tuple) and all(isinstance(identifier, str) for identifier in ids):
        return tuple(identifier.lower() for identifier in ids)
    raise Rejected(
        "hint_invalid",
        f"scheduler_hints.{hint} is {value!r}: should be instance ids",
        key="scheduler_hints",
    )
