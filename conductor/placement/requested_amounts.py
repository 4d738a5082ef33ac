"""What a flavor asks of a tree of providers: its own amounts, and request groups by suffix (pure).

`resources1:CLASS=N`, `resources_NET:CLASS=N` and `trait1:NAME=required|forbidden` make a group
that one provider has to serve; `group_policy` says whether groups may share one.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final, Literal, cast

from conductor.placement.providers import Resources
from conductor.placement.request_groups import (
    CandidateRequest,
    GroupPolicy,
    RequestGroup,
    TraitRule,
)
from conductor.placement.resources import amounts, class_amount
from models.errors import Rejected
from models.hardware import Flavor, FrozenMap, Image, boots_from_volume
from models.hardware.requirements.numa_constraints import guest_topology

POLICY: Final = "group_policy"
_SUFFIX: Final = r"(\d{1,9}|_[A-Za-z0-9_-]{1,64})"
_RESOURCES: Final = re.compile(rf"resources{_SUFFIX}:(\S+)")
_TRAIT: Final = re.compile(rf"trait{_SUFFIX}?:(\S+)")


def request_of(flavor: Flavor, own: Resources) -> CandidateRequest:
    """Return what an instance of the flavor asks of one tree, `own` being its amounts by class.

    Raises `Rejected` (`resources_invalid`, `trait_invalid`, `group_policy_invalid`). Traits of a
    suffix that names no resources are the host's (see `grouped_traits`).
    """
    groups = _groups(flavor)
    traits = _traits(flavor)
    numbered = [
        RequestGroup(suffix, FrozenMap(resources), traits.get(suffix, TraitRule()))
        for suffix, resources in sorted(groups.items())
    ]
    return CandidateRequest((RequestGroup(resources=own), *numbered), _policy(flavor))


def grouped_traits(flavor: Flavor) -> frozenset[str]:
    """Return the extra specs of traits that a provider of a group must have, not the host."""
    groups = _groups(flavor)
    return frozenset(
        key for key in flavor.extra_specs if (found := _TRAIT.fullmatch(key)) and found[1] in groups
    )


def total_of(request: CandidateRequest) -> Resources:
    """Return what all groups ask together, by class."""
    total: Counter[str] = Counter()
    for group in request.groups:
        total.update(group.resources)
    return FrozenMap(dict(total))


def total_requested(flavor: Flavor, image: Image | None) -> Resources:
    """Return what an instance of flavor and image requests in all, by class, its groups included.

    Raises `Rejected` for a flavor and an image that contradict.
    """
    guest = guest_topology(flavor, image or Image(id=""))
    own = amounts(flavor, guest, volume_backed=boots_from_volume(image))
    return total_of(request_of(flavor, own))


def largest_of(request: CandidateRequest) -> Resources:
    """Return by class the most that any one provider must have: what a tree lacks rules it out."""
    largest: dict[str, int] = {}
    for group in request.groups:
        for name, amount in group.resources.items():
            largest[name] = max(amount, largest.get(name, 0))
    return FrozenMap(largest)


def _groups(flavor: Flavor) -> Mapping[str, dict[str, int]]:
    groups: dict[str, dict[str, int]] = defaultdict(dict)
    for key, value in flavor.extra_specs.items():
        found = _RESOURCES.fullmatch(key)
        if found is not None and (amount := class_amount(key, found[2], value)):
            groups[found[1]][found[2]] = amount
    return groups


def _traits(flavor: Flavor) -> Mapping[str, TraitRule]:
    rules: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for key, value in flavor.extra_specs.items():
        if (found := _TRAIT.fullmatch(key)) is None:
            continue
        if value not in ("required", "forbidden"):
            rule = "should be required or forbidden"
            raise Rejected("trait_invalid", f"{key} is {value[:40]!r}: {rule}", key=key)
        rules[found[1] or ""][value].add(found[2])
    return {
        suffix: TraitRule(frozenset(how["required"]), (), frozenset(how["forbidden"]))
        for suffix, how in rules.items()
    }


def _policy(flavor: Flavor) -> GroupPolicy:
    value = flavor.extra_specs.get(POLICY, "none")
    if value not in ("none", "isolate"):
        message = f"{POLICY} is {value[:40]!r}: should be none or isolate"
        raise Rejected("group_policy_invalid", message, key=POLICY)
    return cast(Literal["none", "isolate"], value)
