"""Inventories and aggregates as the `placement` commands take them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from conductor.cli.arguments import pairs
from conductor.placement.resources import MOST
from conductor.store import Inventory
from models.errors import Rejected


def inventories_of(given: Iterable[str]) -> dict[str, Inventory]:
    """Return `CLASS=TOTAL[,NAME=VALUE...]` as inventories; raise `Rejected` for a malformed one."""
    return {name: _inventory(name, text) for name, text in pairs(given, "inventory").items()}


def _inventory(name: str, text: str) -> Inventory:
    total, *rest = text.split(",")
    found: dict[str, Any] = {"total": _number(name, "total", total)}
    for part in rest:
        what, equals, value = part.partition("=")
        if not equals or what not in ("reserved", "ratio", "min_unit", "max_unit", "step_size"):
            rule = "should be reserved, ratio, min_unit, max_unit or step_size with =VALUE"
            raise Rejected("inventory_invalid", f"inventory of {name} says {part}: {rule}")
        found[what] = _ratio(name, value) if what == "ratio" else _number(name, what, value)
    return Inventory(**found)


def _number(name: str, what: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        rule = f"should be a whole number from 0 to {MOST}"
        message = f"inventory of {name}: {what} is {text[:40]!r}: {rule}"
        raise Rejected("inventory_invalid", message, key="inventory")
    return int(text)


def _ratio(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        message = f"inventory of {name}: ratio is {text[:40]!r}: should be a number"
        raise Rejected("inventory_invalid", message, key="inventory") from None


def aggregate_uuid(text: str) -> str:
    """Return the UUID of an aggregate in its usual form; raise `Rejected` for any other text."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        message = f"aggregate is {text[:40]!r}: should be a UUID"
        raise Rejected("aggregate_invalid", message, key="aggregate") from None
