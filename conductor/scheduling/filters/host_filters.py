"""Filters on the host itself: the one that was requested, in service, in the same cell."""

from __future__ import annotations

from collections.abc import Iterator

from conductor.scheduling.fleet.filter_verdicts import Check
from conductor.scheduling.fleet.fleet_snapshot import Fleet
from conductor.scheduling.fleet.host_columns import (
    capability_column,
    is_degraded,
    is_enabled,
    is_forced_down,
)
from conductor.scheduling.request.request_spec import RequestSpec
from models.hardware.requirements.spec_operators import Condition


def named(spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """Only the requested host, not the one it moves from, none that was tried and refused."""
    if spec.host is not None:
        what = f"not {spec.host}, which was asked for"
        lacks = (f"is {what}", f"are {what}")
        yield Check("other_host", lacks, fleet.mask([spec.host]))
    if spec.source in spec.ignored:
        lacks = ("is where it is already", "are where it is already")
        yield Check("is_source", lacks, ~fleet.mask([spec.source]))
    tried = spec.ignored - {spec.source}
    if tried:
        lacks = ("was tried and refused", "were tried and refused")
        yield Check("already_tried", lacks, ~fleet.mask(tried))


def in_service(_spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """Enabled, up and not degraded."""
    enabled = fleet.column(is_enabled) == 1
    yield Check("disabled", ("is disabled", "are disabled"), enabled)
    yield Check("down", ("is down", "are down"), fleet.up & (fleet.column(is_forced_down) == 0))
    yield Check("degraded", ("is degraded", "are degraded"), fleet.column(is_degraded) == 0)


def in_cell(spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """For a move, in the same deployment cell: records and messages do not cross cells."""
    source = fleet.get(spec.source or "")
    if source is not None:
        lacks = ("is in another deployment cell", "are in another deployment cell")
        column = fleet.column(capability_column("cell", Condition("", (source.cell_id,))))
        yield Check("other_cell", lacks, column == 1)
