"""Arguments parsed into values, or refused in one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TypeVar

from models.errors import Rejected
from models.hardware import parse_cpu_list
from workers.inventory.hardware_findings import CpuSets

E = TypeVar("E", bound=StrEnum)


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


def member(kind: type[E], text: str | None, field: str) -> E | None:
    """Return the member that a text names in any case; raise `Rejected` when it names none."""
    if text is None:
        return None
    for value in kind:
        if value.value.lower() == text.lower():
            return value
    choice([value.value for value in kind], text, field)
    return None


def choice(known: Sequence[str], text: str | None, field: str) -> str | None:
    """Return the text; raise `Rejected` when it is none of those that are known."""
    if text is not None and text not in known:
        message = f"{field} is {text}: should be one of {', '.join(known)}"
        raise Rejected("value_unknown", message, key=field)
    return text


def cpu_sets(shared: str | None, dedicated: str | None) -> CpuSets | None:
    """Return the CPU sets of two options, None where neither is given; `Rejected` when wrong."""
    if shared is None and dedicated is None:
        return None
    return CpuSets(
        None if shared is None else parse_cpu_list(shared),
        None if dedicated is None else parse_cpu_list(dedicated),
    )


def reserved_pages(given: Iterable[str] | None) -> list[dict[str, str]]:
    """Return `CELL:SIZE:COUNT` arguments as entries; raise `Rejected` for one that is none."""
    entries = []
    for text in given or ():
        parts = text.split(":")
        if len(parts) != 3 or not all(parts):
            message = f"--reserve-pages is {text[:40]}: should be CELL:SIZE:COUNT, as 0:2MB:64"
            raise Rejected("reserved_pages_invalid", message, key="--reserve-pages")
        entries.append(dict(zip(("node", "size", "count"), parts, strict=True)))
    return entries
