"""Filters on what a host is able to do: traits, architecture, capabilities."""

from __future__ import annotations

from collections.abc import Iterator

from conductor.scheduling.fleet.filter_verdicts import Check
from conductor.scheduling.fleet.fleet_snapshot import Fleet
from conductor.scheduling.fleet.host_columns import (
    architecture_column,
    capability_column,
    hardware_column,
    trait_column,
)
from conductor.scheduling.request.request_spec import RequestSpec


def has_traits(spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """With the traits that flavor and image require, without those that the flavor forbids."""
    requirements = spec.shape.host_requirements
    for trait in sorted(requirements.required):
        lacks = (f"lacks the trait {trait}", f"lack the trait {trait}")
        yield Check("trait_missing", lacks, fleet.column(trait_column(trait)) == 1)
    for trait in sorted(requirements.forbidden):
        lacks = (f"has the forbidden trait {trait}", f"have the forbidden trait {trait}")
        yield Check("trait_forbidden", lacks, fleet.column(trait_column(trait)) == 0)
    for trait in sorted(requirements.hardware):
        lacks = (f"cannot give its guests {trait}", f"cannot give their guests {trait}")
        yield Check("hardware_missing", lacks, fleet.column(hardware_column(trait)) == 1)
    if requirements.architecture is not None:
        lacks = ("is of another architecture", "are of another architecture")
        column = fleet.column(architecture_column(requirements.architecture))
        yield Check("other_architecture", lacks, column == 1)


def has_capabilities(spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """With capability values that meet the flavor's conditions, such as the hypervisor type."""
    for name, condition in spec.shape.host_requirements.capabilities.items():
        what = f"no {name} {condition}"
        passed = fleet.column(capability_column(name, condition)) == 1
        yield Check("capability_missing", (f"has {what}", f"have {what}"), passed)
