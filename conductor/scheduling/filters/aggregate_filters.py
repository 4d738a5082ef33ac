"""Filters on availability zones and aggregates, as operators define them in the catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce

import numpy as np

from conductor.placement.host_requirements import ISOLATED_IMAGES
from conductor.scheduling.fleet.filter_verdicts import Check
from conductor.scheduling.fleet.fleet_snapshot import Fleet, Mask
from conductor.scheduling.request.request_spec import RequestSpec


def in_zone(spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """In the requested availability zone."""
    if spec.zone is not None:
        lacks = ("is in another zone", "are in another zone")
        yield Check("other_zone", lacks, fleet.zone(spec.zone))


def in_aggregates(spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """In an aggregate whose metadata meets each condition of the flavor.

    A metadata value may be a comma separated list. A negative condition has to hold in every
    aggregate of the host that has the key.
    """
    for key, condition in spec.shape.aggregate_specs.items():
        tagged = fleet.tagged(key)
        passed = _any_of(
            fleet, [aggregate.hosts for aggregate in tagged if condition.holds(aggregate.values)]
        )
        if condition.negative:
            broken = [
                aggregate.hosts for aggregate in tagged if not condition.holds(aggregate.values)
            ]
            passed = passed & ~_any_of(fleet, broken)
        what = f"in no aggregate with {key} {condition}"
        if not condition.operator:
            what = f"in no aggregate with {key}={condition.operands[0]}"
        yield Check("other_aggregate", (f"is {what}", f"are {what}"), passed)


def not_isolated(spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """Not reserved for other images or projects; an isolated image only where it is listed.

    Aggregate metadata `isolated_images` and `filter_tenant_id`, each a comma separated list.
    """
    image = spec.shape.image.id if spec.shape.image is not None else ""
    images = fleet.tagged(ISOLATED_IMAGES)
    if images:
        own = _any_of(fleet, [aggregate.hosts for aggregate in images if image in aggregate.values])
        others = _any_of(fleet, [aggregate.hosts for aggregate in images])
        lacks = ("is set apart for other images", "are set apart for other images")
        if own.any():
            lacks = ("is not set apart for its image", "are not set apart for its image")
        yield Check("isolated", lacks, own if own.any() else ~others)
    projects = fleet.tagged("filter_tenant_id")
    if projects:
        closed = [
            aggregate.hosts for aggregate in projects if spec.project_id not in aggregate.values
        ]
        lacks = ("is set apart for other projects", "are set apart for other projects")
        opened = [aggregate.hosts for aggregate in projects if spec.project_id in aggregate.values]
        yield Check("other_project", lacks, _any_of(fleet, opened) | ~_any_of(fleet, closed))


def _any_of(fleet: Fleet, masks: Iterable[Mask]) -> Mask:
    return reduce(np.logical_or, masks, np.zeros(len(fleet), np.bool_))
