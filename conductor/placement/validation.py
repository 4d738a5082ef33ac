"""What inventories and allocations can be at all, whatever a provider has (pure)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from conductor.placement.providers import Consumer, Resources
from conductor.placement.resources import MOST
from conductor.store import Inventory
from models.errors import Rejected
from models.hardware import FrozenMap

_KIND: Final = re.compile(r"[a-z0-9_]+")
_LONGEST_NAME: Final = 200


def check_name(name: str) -> None:
    """Raise `Rejected` (`provider_name_invalid`) for a name that no table or server could show."""
    if not (1 <= len(name) <= _LONGEST_NAME and name.isprintable() and name == name.strip()):
        rule = f"should be 1 to {_LONGEST_NAME} printable characters, no space around them"
        message = f"name is {name[:_LONGEST_NAME]!r}: {rule}"
        raise Rejected("provider_name_invalid", message, key="name")


def check_inventories(inventories: Mapping[str, Inventory]) -> None:
    """Raise `Rejected` (`inventory_invalid`) naming the first number that cannot be."""
    for name, inventory in inventories.items():
        for field, value, fine, rule in _numbers(inventory):
            if not fine:
                key = f"{name}.{field}"
                raise Rejected("inventory_invalid", f"{key} is {value}: should be {rule}", key=key)


def _numbers(inventory: Inventory) -> Iterator[tuple[str, float | None, bool, str]]:
    units = f"from 1 to {MOST}"
    most = inventory.max_unit
    yield "total", inventory.total, 1 <= inventory.total <= MOST, units
    yield (
        "reserved",
        inventory.reserved,
        0 <= inventory.reserved <= inventory.total,
        "from 0 to the total",
    )
    yield "ratio", inventory.ratio, 0 < inventory.ratio < math.inf, "a number greater than 0"
    yield "min_unit", inventory.min_unit, 1 <= inventory.min_unit <= MOST, units
    yield "max_unit", most, most is None or 1 <= most <= MOST, units
    yield "step_size", inventory.step_size, 1 <= inventory.step_size <= MOST, units


def checked(consumers: Sequence[Consumer]) -> tuple[Consumer, ...]:
    """Return the consumers without amounts of 0, in ascending order of id.

    Raises `Rejected` (`allocation_invalid`) for negative amounts, a consumer that comes twice,
    and a kind that is no lower case word.
    """
    tidy = tuple(sorted(map(_tidy, consumers), key=lambda item: item.id))
    for first, second in pairwise(tidy):
        if first.id == second.id:
            raise _invalid("consumer", first.id, "should come once in a request")
    return tidy


def _tidy(consumer: Consumer) -> Consumer:
    if not _KIND.fullmatch(consumer.kind):
        raise _invalid("kind", consumer.kind, "should be a lower case word")
    held = {
        provider_id: FrozenMap(kept)
        for provider_id, resources in consumer.allocations.items()
        if (kept := dict(_amounts(resources)))
    }
    return replace(consumer, allocations=FrozenMap(held))


def _amounts(resources: Resources) -> Iterable[tuple[str, int]]:
    for name, amount in resources.items():
        if not 0 <= amount <= MOST:
            raise _invalid(name, amount, f"should be from 0 to {MOST}")
        if amount:
            yield name, amount


def _invalid(key: str, value: object, rule: str) -> Rejected:
    return Rejected("allocation_invalid", f"{key} is {value}: {rule}", key=key)
