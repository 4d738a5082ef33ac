"""The filters: what rules a host out, each a plain function over the whole fleet.

Order matters only for the story: a host is counted under the first check that it fails, so
what an operator decided comes before what happens to be full.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial, reduce
from typing import Final

import numpy as np

from conductor.placement.host_requirements import ISOLATED_IMAGES
from conductor.placement.resources import DISK_GB, MEMORY_MB, PCPU, VCPU
from conductor.scheduling.filters.numa_filter import has_numa_cells
from conductor.scheduling.fleet.filter_verdicts import Check, Filter
from conductor.scheduling.fleet.fleet_snapshot import NO_PLACE, Fleet, Mask, Numbers
from conductor.scheduling.fleet.host_columns import (
    architecture_column,
    capability_column,
    instances,
    is_degraded,
    is_enabled,
    is_forced_down,
    left_column,
    most_column,
    trait_column,
)
from conductor.scheduling.request.group_rules import closed_places, joined_places
from conductor.scheduling.request.request_spec import RequestSpec
from models.hardware.requirements.spec_operators import Condition
from models.messages.catalogue import BUSY_LIMIT, COUNT_LIMIT

UNBOUNDED: Final = 2**31

_NAMES = {VCPU: "shared CPUs", PCPU: "dedicated CPUs", MEMORY_MB: "memory", DISK_GB: "disk"}
_UNITS = {MEMORY_MB: "MiB", DISK_GB: "GiB"}


def named(spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """Only the host that the request names, not where it is already, none that has refused it."""
    if spec.host is not None:
        asked = f"not {spec.host}, which was asked for"
        lacks = (f"is {asked}", f"are {asked}")
        yield Check("other_host", lacks, fleet.mask([spec.host]))
    if spec.source in spec.ignored:
        lacks = ("is where it is already", "are where it is already")
        yield Check("is_source", lacks, ~fleet.mask([spec.source]))
    tried = spec.ignored - {spec.source}
    if tried:
        lacks = ("was tried and refused", "were tried and refused")
        yield Check("already_tried", lacks, ~fleet.mask(tried))


def in_service(_spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """Enabled, up, and with accounts that can be believed."""
    enabled = fleet.column(is_enabled) == 1
    yield Check("disabled", ("is disabled", "are disabled"), enabled)
    yield Check("down", ("is down", "are down"), fleet.up & (fleet.column(is_forced_down) == 0))
    yield Check("degraded", ("is degraded", "are degraded"), fleet.column(is_degraded) == 0)


def in_zone(spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """In the availability zone asked for."""
    if spec.zone is not None:
        lacks = ("is in another zone", "are in another zone")
        yield Check("other_zone", lacks, fleet.zone(spec.zone))


def in_cell(spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """In the deployment cell that it moves from: its records and messages are there."""
    source = fleet.get(spec.source or "")
    if source is not None:
        lacks = ("is in another deployment cell", "are in another deployment cell")
        column = fleet.column(capability_column("cell", Condition("", (source.cell_id,))))
        yield Check("other_cell", lacks, column == 1)


def in_aggregates(spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """In an aggregate whose metadata meets each condition of the flavor.

    A metadata value may list several, separated by commas. What a value must not be, it must not
    be in any aggregate of the host that says it.
    """
    for key, condition in spec.shape.aggregate_specs.items():
        tagged = fleet.tagged(key)
        passed = _any_of(fleet, [item.hosts for item in tagged if condition.holds(item.values)])
        if condition.negative:
            broken = [item.hosts for item in tagged if not condition.holds(item.values)]
            passed = passed & ~_any_of(fleet, broken)
        what = f"in no aggregate with {key} {condition}"
        if not condition.operator:
            what = f"in no aggregate with {key}={condition.operands[0]}"
        yield Check("other_aggregate", (f"is {what}", f"are {what}"), passed)


def not_isolated(spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """Hosts set apart for images or projects take no others; such images go nowhere else.

    Aggregate metadata `isolated_images` and `filter_tenant_id`, each a list by commas.
    """
    image = spec.shape.image.id if spec.shape.image is not None else ""
    images = fleet.tagged(ISOLATED_IMAGES)
    if images:
        own = _any_of(fleet, [tagged.hosts for tagged in images if image in tagged.values])
        others = _any_of(fleet, [tagged.hosts for tagged in images])
        lacks = ("is set apart for other images", "are set apart for other images")
        if own.any():
            lacks = ("is not set apart for its image", "are not set apart for its image")
        yield Check("isolated", lacks, own if own.any() else ~others)
    projects = fleet.tagged("filter_tenant_id")
    if projects:
        closed = [project.hosts for project in projects if spec.project_id not in project.values]
        lacks = ("is set apart for other projects", "are set apart for other projects")
        opened = [project.hosts for project in projects if spec.project_id in project.values]
        yield Check("other_project", lacks, _any_of(fleet, opened) | ~_any_of(fleet, closed))


def not_crowded(_spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """Within the most instances, and the most work at once, that aggregates allow their hosts.

    Aggregate metadata `max_instances_per_host` and `max_io_ops_per_host`; of several the least.
    """
    for key, what, have in (
        (COUNT_LIMIT, "instances", fleet.column(instances)),
        (BUSY_LIMIT, "builds and moves under way", fleet.busy),
    ):
        for limit in fleet.tagged(key):
            if limit.value.isdecimal():
                most = int(limit.value)
                lacks = (f"has {most:,} {what} already", f"have {most:,} {what} already")
                yield Check(key.removesuffix("_per_host"), lacks, ~limit.hosts | (have < most))


def instances_left(fleet: Fleet) -> Numbers:
    """Return how many more instances aggregates let each row have, `UNBOUNDED` without limit."""
    left = np.full(len(fleet), UNBOUNDED, np.int64)
    for limit in fleet.tagged(COUNT_LIMIT):
        if limit.value.isdecimal():
            more = np.maximum(int(limit.value) - fleet.column(instances), 0)
            left[limit.hosts] = np.minimum(left, more)[limit.hosts]
    return left


def has_traits(spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """With the traits that flavor and image require, without those that the flavor forbids."""
    requirements = spec.shape.host_requirements
    for trait in sorted(requirements.required):
        lacks = (f"lacks the trait {trait}", f"lack the trait {trait}")
        yield Check("trait_missing", lacks, fleet.column(trait_column(trait)) == 1)
    for trait in sorted(requirements.forbidden):
        lacks = (f"has the forbidden trait {trait}", f"have the forbidden trait {trait}")
        yield Check("trait_forbidden", lacks, fleet.column(trait_column(trait)) == 0)
    if requirements.architecture is not None:
        lacks = ("is of another architecture", "are of another architecture")
        column = fleet.column(architecture_column(requirements.architecture))
        yield Check("other_architecture", lacks, column == 1)


def has_capabilities(spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """With values of its own as the flavor asks for them, such as the hypervisor's kind."""
    for name, condition in spec.shape.host_requirements.capabilities.items():
        what = f"no {name} {condition}"
        passed = fleet.column(capability_column(name, condition)) == 1
        yield Check("capability_missing", (f"has {what}", f"have {what}"), passed)


def hinted(spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """With the instances it wants to be with, without those it wants to be apart from."""
    if spec.companion_hosts is not None:
        lacks = ("is not the host of its companions", "are not the host of its companions")
        if not spec.companion_hosts:
            lacks = (f"{lacks[0]}, which have none", f"{lacks[1]}, which have none")
        yield Check("not_same_host", lacks, fleet.mask(spec.companion_hosts))
    if spec.avoided_hosts:
        lacks = ("holds an instance to be apart from", "hold an instance to be apart from")
        yield Check("not_different_host", lacks, ~fleet.mask(spec.avoided_hosts))


def in_group(spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """Where the server group's rule lets its next member be."""
    rule = spec.group
    if rule is None or not rule.hard:
        return
    labels = fleet.labels(rule.scope)
    if (labels == NO_PLACE).any():
        lacks = (f"has no {rule.scope}", f"have no {rule.scope}")
        yield Check("no_place", lacks, labels != NO_PLACE)
    if not rule.members:
        return
    if rule.together:
        what = f"not on the {rule.scope} of its group"
        passed = fleet.at(rule.scope, joined_places(rule, fleet.place_of))
    else:
        what = f"on a {rule.scope} that its group closes"
        passed = ~fleet.at(rule.scope, closed_places(rule, fleet.place_of))
    yield Check(rule.policy.replace("-", "_"), (f"is {what}", f"are {what}"), passed)


def has_amounts(spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """Room for every amount: used + asked <= (total - reserved) * ratio.

    And one guest is never larger than the host itself, however often its CPUs are shared. Of
    classes that a provider beside the host has, that one's room counts where it is more; who has
    to serve what is worked out for the hosts that are tried.
    """
    providers = fleet.providers.release(spec.allocated)
    for name, amount in spec.shape.least.items():
        left, most = fleet.column(left_column(name)), fleet.column(most_column(name))
        if providers:
            there = fleet.numbers(providers.most(fleet.hosts, name))
            left, most = np.maximum(left, there), np.maximum(most, there)
        what, unit = _NAMES.get(name, name), _UNITS.get(name, "")
        yield Check(
            f"no_room_{name.lower()}",
            (f"lacks free {what}", f"lack free {what}"),
            left >= amount,
            amount,
            partial(_not_negative, left),
            unit,
        )
        smaller = (f"is too small in {what}", f"are too small in {what}")
        yield Check(
            f"too_small_{name.lower()}",
            smaller,
            most >= amount,
            amount,
            partial(_not_negative, most),
            unit,
        )


DEFAULT_FILTERS: tuple[Filter, ...] = (
    named,
    in_service,
    in_cell,
    in_zone,
    in_aggregates,
    not_isolated,
    has_traits,
    has_capabilities,
    hinted,
    in_group,
    not_crowded,
    has_amounts,
    has_numa_cells,
)

PHYSICAL: frozenset[Filter] = frozenset({named, has_amounts, has_numa_cells})
"""What even a forced demand is held to: the host that was named, and its room."""


def _any_of(fleet: Fleet, masks: Iterable[Mask]) -> Mask:
    return reduce(np.logical_or, masks, np.zeros(len(fleet), np.bool_))


def _not_negative(values: Numbers, rows: Numbers) -> Numbers:
    return np.maximum(values[rows], 0)
