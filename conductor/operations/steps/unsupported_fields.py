"""What of a request nobody could honour: refused by field, value and rule before any claim.

Whatever stands here is accepted by the shape of the message, since it has a meaning in this field.
As long as no host can give it to a guest, taking it would mean to ignore it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final

from conductor.placement.host_requirements import CAPABILITIES, CAPABILITY, named_requirements
from conductor.placement.requested_amounts import request_of
from conductor.placement.resource_names import TRAITS, is_custom
from conductor.placement.resources import amounts
from models.errors import Rejected
from models.hardware import Flavor, Image
from models.hardware.requirements.extra_specs import (
    nearest,
    refuse_keys_of_flavor,
    refuse_keys_of_image,
)
from models.hardware.requirements.parsing import wrong
from models.hardware.requirements.spec_operators import condition_of
from models.messages.catalogue import (
    BUSY_LIMIT,
    COUNT_LIMIT,
    OWN_MULTIPLIER,
    WEIGHER_NAMES,
    WEIGHER_PLUGINS,
)
from models.messages.guests.requested_hardware import refuse_flavor_values, refuse_image_values

if TYPE_CHECKING:
    from models.messages.requests import InstanceBody

NO_NETWORK: Final = "none"
HINTS: Final = ("same_host", "different_host")
_AGGREGATE: Final = "aggregate_instance_extra_specs:"
_READ: Final = (COUNT_LIMIT, BUSY_LIMIT, "isolated_images", "filter_tenant_id")
_ELSEWHERE: Final = {
    "availability_zone": "zones are entries of their own (zones create)",
    "cpu_allocation_ratio": "ratios are a setting of the conductor",
    "ram_allocation_ratio": "ratios are a setting of the conductor",
    "disk_allocation_ratio": "ratios are a setting of the conductor",
}
"""Metadata of aggregates that means something to others of this field, and nothing here."""


def refuse_flavor_keys(flavor: Flavor) -> None:
    """Refuse extra specs that are unknown, blank, malformed, or that no host can grant.

    Raises `Rejected` with the codes of `refuse_keys_of_flavor` and of whatever reads the values.
    """
    refuse_keys_of_flavor(flavor)
    for key, value in flavor.extra_specs.items():
        if key.startswith(_AGGREGATE):
            condition_of(key, value)
        name = key.removeprefix(CAPABILITY)
        if key != name and name not in CAPABILITIES:
            known = f"hosts say {', '.join(sorted(CAPABILITIES))}{nearest(name, CAPABILITIES)}"
            raise wrong("capability_unknown", key, value, known)
    _traits_exist(flavor.extra_specs, "trait")
    named_requirements(flavor, None)
    refuse_flavor_values(flavor)
    request_of(flavor, amounts(flavor, None))


def refuse_image_keys(image: Image) -> None:
    """Refuse properties that are unknown, blank, or that no host can grant."""
    refuse_keys_of_image(image)
    _traits_exist(image.properties, "trait")
    listed = image.properties.get("traits_required")
    for name in listed if isinstance(listed, tuple) else ():
        _trait_exists("traits_required", str(name), name)
    named_requirements(Flavor("", 1, 1), image)
    refuse_image_values(image)


def refuse_fields(body: InstanceBody) -> None:
    """Refuse what a build asks of its guest that no host can give: networks, keys, drives, hints.

    Codes: `not_supported`, `hint_unknown`.
    """
    if body.networks not in ((), (NO_NETWORK,)):
        rule = f"there are no networks yet: leave it out, or say {NO_NETWORK}"
        raise _no("networks", list(body.networks), rule)
    if body.key_name is not None:
        raise _no("key_name", body.key_name, "no host puts keys into its guests: leave it out")
    if body.security_groups:
        rule = "there are no networks to filter: leave it out"
        raise _no("security_groups", list(body.security_groups), rule)
    if body.config_drive:
        raise _no("config_drive", True, "no host can give its guests a config drive")
    for hint in body.scheduler_hints:
        if hint not in HINTS:
            rule = f"hints are {' and '.join(HINTS)}{nearest(hint, HINTS)}"
            key = f"instance.scheduler_hints.{hint[:60]}"
            raise Rejected("hint_unknown", f"{key} is no known hint: {rule}", key=key)


def refuse_metadata(metadata: Mapping[str, str]) -> None:
    """Refuse metadata of an aggregate that looks as if it were read here, and is not."""
    for key, value in metadata.items():
        if key in _READ:
            continue
        if key.endswith(OWN_MULTIPLIER):
            rule = _unknown_weigher(key.removesuffix(OWN_MULTIPLIER))
        else:
            rule = _ELSEWHERE.get(key) or _slip(key, _READ)
        if rule:
            raise Rejected("metadata_invalid", f"{key} is {value[:40]!r}: {rule}", key="metadata")


def _unknown_weigher(name: str) -> str:
    known = {*WEIGHER_NAMES, *entry_points(group=WEIGHER_PLUGINS).names}
    return "" if name in known else f"no weigher is called so{nearest(name, known)}"


def _slip(key: str, known: Collection[str]) -> str:
    hint = nearest(key, known, hardly_another=True)
    return f"no metadata of this name is read{hint}" if hint else ""


def _traits_exist(keys: Iterable[str], scope: str) -> None:
    for key in keys:
        before, colon, name = key.partition(":")
        if colon and before.startswith(scope):
            _trait_exists(key, name, name)


def _trait_exists(key: str, name: str, value: object) -> None:
    """Refuse a trait that nobody can have: to forbid it, or a slip in it, would do nothing."""
    if name not in TRAITS.standard and not is_custom(name):
        rule = (
            f"no standard trait, and none of CUSTOM_ and capitals{nearest(name, TRAITS.standard)}"
        )
        raise wrong("trait_unknown", key, value, rule)


def _no(field: str, value: object, rule: str) -> Rejected:
    return wrong("not_supported", f"instance.{field}", value, rule)
