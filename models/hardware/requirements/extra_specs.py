"""What becomes of the keys of a flavor and an image, before anything reads their values (pure)."""

import re
from collections.abc import Collection
from difflib import get_close_matches
from typing import Final

from models.errors import Rejected
from models.hardware import Flavor, Image
from models.hardware.requirements.known_keys import (
    ANYTHING_ELSE,
    EXTRA_SPECS,
    NUMBERED,
    PROPERTIES,
    SCOPES,
    YES_OR_NO,
    Effect,
    KnownKey,
)
from models.hardware.requirements.parsing import flag, is_yes_or_no, wrong

_GROUPED: Final = re.compile(r"(resources|trait)(\d{1,9}|_[A-Za-z0-9_-]{1,64})?:\S+")
_NAMED: Final = re.compile(r"(aggregate_instance_extra_specs|capabilities):\S(.*\S)?")
_OF_IMAGE: Final = re.compile(r"trait(\d{1,9}|_[A-Za-z0-9_-]{1,64})?:\S+")
_SPELLED: Final = "it must be yes or no, true or false, on or off, 1 or 0"
_NEAR: Final = 0.6
_HARDLY_ANOTHER: Final = 0.85
"""How alike a free name and a known one must be for the free one to be a slip of the pen."""


def extra_spec(key: str) -> KnownKey | None:
    """Return what becomes of a flavor's extra spec, None for one that nobody knows."""
    known = EXTRA_SPECS.get(key)
    if known is not None:
        return known
    if key.startswith("hw:"):
        return EXTRA_SPECS["hw:numa_nodes"] if _is_numbered(key[3:]) else None
    found = _GROUPED.fullmatch(key) or _NAMED.fullmatch(key)
    return SCOPES[found[1]] if found else None


def image_property(key: str) -> KnownKey | None:
    """Return what becomes of an image's property, None for one that has to be a mistake."""
    known = PROPERTIES.get(key)
    if known is not None:
        return known
    if key.startswith("hw_"):
        return PROPERTIES["hw_numa_nodes"] if _is_numbered(key[3:]) else None
    if _OF_IMAGE.fullmatch(key):
        return SCOPES["trait"]
    if key.startswith("hw:") or extra_spec(key) or _likest(key, PROPERTIES, _HARDLY_ANOTHER):
        return None
    return ANYTHING_ELSE


def refuse_unknown_hardware(flavor: Flavor, image: Image) -> None:
    """Raise `Rejected` for the first `hw:` or `hw_` key that nobody knows."""
    for key, value in flavor.extra_specs.items():
        if key.startswith("hw:") and extra_spec(key) is None:
            raise _unknown_spec(key, value)
    for key, setting in image.properties.items():
        if key.startswith("hw_") and image_property(key) is None:
            raise _unknown_property(key, setting)


def refuse_keys_of_flavor(flavor: Flavor) -> None:
    """Raise the first `Rejected` among a flavor's keys: unknown, blank, or granted by no host.

    Codes: `extra_spec_unknown`, `extra_spec_blank`, `extra_spec_invalid`, `not_supported`.
    """
    for key, value in flavor.extra_specs.items():
        known = extra_spec(key)
        if known is None:
            raise _unknown_spec(key, value)
        if not value.strip():
            raise wrong("extra_spec_blank", key, value, "leave it out, or say what it should be")
        if key in YES_OR_NO and not is_yes_or_no(value):
            raise wrong("extra_spec_invalid", key, value, _SPELLED)
        _refuse_ungranted(known, key, value)


def refuse_keys_of_image(image: Image) -> None:
    """Raise the first `Rejected` among an image's keys: unknown, blank, or granted by no host.

    Codes: `image_property_unknown`, `image_property_blank`, `image_property_invalid`,
    `not_supported`.
    """
    for key, value in image.properties.items():
        known = image_property(key)
        if known is None:
            raise _unknown_property(key, value)
        if known.effect is Effect.INFORMATION:
            continue
        if value is None or not str(value).strip():
            rule = "leave it out, or say what it should be"
            raise wrong("image_property_blank", key, value, rule)
        if key in YES_OR_NO and not is_yes_or_no(value):
            raise wrong("image_property_invalid", key, value, _SPELLED)
        _refuse_ungranted(known, key, value)


def nearest(name: str, known: Collection[str], *, hardly_another: bool = False) -> str:
    """Return `; did you mean NAME?` for a name that is like a known one, else nothing.

    With `hardly_another` it must be so alike that it can hardly be meant as a name of its own.
    """
    likest = _likest(name, known, _HARDLY_ANOTHER if hardly_another else _NEAR)
    return f"; did you mean {likest}?" if likest else ""


def _refuse_ungranted(known: KnownKey, key: str, value: object) -> None:
    if known.effect is not Effect.REFUSED:
        return
    is_active = flag(value) if known.flag else str(value).strip().lower() not in known.idle
    if is_active:
        raise wrong("not_supported", key, value, known.why)


def _is_numbered(name: str) -> bool:
    # Whatever stands behind the point: who reads these keys says what is wrong with it.
    return name.partition(".")[0] in NUMBERED and "." in name


def _unknown_spec(key: str, value: object) -> Rejected:
    scope, colon, name = key.partition(":")
    if not colon and key.startswith("hw_") and f"hw:{key[3:]}" in EXTRA_SPECS:
        hint = f"; did you mean hw:{key[3:]}?"
    elif colon and scope not in SCOPES and (scoped := _likest(scope, SCOPES, _NEAR)):
        hint = f"; did you mean {scoped}:{name}?"
    else:
        hint = nearest(key, EXTRA_SPECS)
    if not hint and not colon:
        hint = f"; a condition on aggregates is aggregate_instance_extra_specs:{key}"
    return wrong("extra_spec_unknown", key, value, f"no extra spec has this name{hint}")


def _unknown_property(key: str, value: object) -> Rejected:
    if key.startswith("hw:") and f"hw_{key[3:]}" in PROPERTIES:
        hint = f"; did you mean hw_{key[3:]}?"
    elif extra_spec(key) is not None:
        hint = "; it belongs into a flavor's extra specs"
    else:
        hint = nearest(key, PROPERTIES)
    return wrong("image_property_unknown", key, value, f"no image property has this name{hint}")


def _likest(name: str, known: Collection[str], cutoff: float) -> str | None:
    by_small = {known_name.lower(): known_name for known_name in known}
    found = get_close_matches(name.strip().lower(), by_small, n=1, cutoff=cutoff)
    return by_small[found[0]] if found else None
