"""Values of records that no column holds as they are, to text and back.

What is shared by many rows (flavors, images, inventories) is decoded once: the values are
frozen, so that rows may share them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from conductor.store.records import Inventory
from models.hardware import Flavor, FrozenMap, Image, Placement
from models.messages.hardware.hardware_json import (
    flavor_from_row,
    flavor_to_json,
    image_from_row,
    image_to_json,
    placement_from_json,
    placement_to_json,
)

_REPLACEMENT: Final = "\ufffd"
_REMEMBERED: Final = 4096
_INVENTORY: Final = tuple(field.name for field in fields(Inventory))
_USUAL: Final = tuple(field.default for field in fields(Inventory))
_ALWAYS: Final = 3


@dataclass(frozen=True, slots=True)
class Codec:
    """How one field becomes text and comes back; `None` never reaches it.

    `scalar` fields can be asked for in `where`. `settles` tells that encoding may change the
    value (a tuple in JSON becomes a list), which the in-memory twin then does too.
    """

    encode: Callable[[Any], str]
    decode: Callable[[Any], Any]
    scalar: bool = False
    settles: bool = False


def to_text(value: Any) -> str:
    """Return compact JSON in ASCII; raise `TypeError` or `ValueError` for what is no JSON."""
    return _ENCODER.encode(value)


def enum(kind: type[StrEnum]) -> Codec:
    """Return the codec of a state: its plain text."""
    members = {member.value: member for member in kind}
    return Codec(str, members.__getitem__, scalar=True)


def _thawed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


# ASCII, since neither database takes a lone surrogate and PostgreSQL takes no NUL.
_ENCODER: Final = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=True, allow_nan=False, default=_thawed
)


@lru_cache(_REMEMBERED)
def _flavor_text(flavor: Flavor) -> str:
    return to_text(flavor_to_json(flavor))


@lru_cache(_REMEMBERED)
def _flavor(text: str | bytes) -> Flavor:
    return flavor_from_row(json.loads(text))


# Not remembered: images that differ only in 1 and true are equal, but not the same JSON.
def _image_text(image: Image) -> str:
    return to_text(image_to_json(image))


@lru_cache(_REMEMBERED)
def _image(text: str | bytes) -> Image:
    return image_from_row(json.loads(text))


def _placement_text(placement: Placement) -> str:
    return to_text(placement_to_json(placement))


def _placement(text: str | bytes) -> Placement:
    return placement_from_json(json.loads(text))


def _inventory_text(inventory: Mapping[str, Inventory]) -> str:
    return to_text({name: _numbers(item) for name, item in inventory.items()})


def _numbers(inventory: Inventory) -> list[float | None]:
    """Return the fields in order; of those about single claims the last, if usual, are left out.

    A row is written with every change of use, so it should be short.
    """
    numbers = [getattr(inventory, name) for name in _INVENTORY]
    while len(numbers) > _ALWAYS and numbers[-1] == _USUAL[len(numbers) - 1]:
        numbers.pop()
    return numbers


@lru_cache(_REMEMBERED)
def _inventory(text: str | bytes) -> Mapping[str, Inventory]:
    return FrozenMap({name: Inventory(*numbers) for name, numbers in json.loads(text).items()})


def _tuple(text: str | bytes) -> tuple[Any, ...]:
    return tuple(json.loads(text))


def _names_text(names: frozenset[str]) -> str:
    return to_text(sorted(names))


@lru_cache(_REMEMBERED)
def _names(text: str | bytes) -> frozenset[str]:
    return frozenset(json.loads(text))


def _writable(text: str) -> str:
    # Somebody else's bytes end up here, and PostgreSQL refuses NUL, both refuse surrogates.
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", _REPLACEMENT)


JSON: Final = Codec(to_text, json.loads, settles=True)
JSON_TUPLE: Final = Codec(to_text, _tuple, settles=True)
NAMES: Final = Codec(_names_text, _names)
FREE_TEXT: Final = Codec(_writable, str, scalar=True, settles=True)
FLAVOR: Final = Codec(_flavor_text, _flavor)
IMAGE: Final = Codec(_image_text, _image)
PLACEMENT: Final = Codec(_placement_text, _placement)
INVENTORY: Final = Codec(_inventory_text, _inventory)
