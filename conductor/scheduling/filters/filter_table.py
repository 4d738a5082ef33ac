"""The table of built-in filters: a new filter is a function in a module here, and a row below.

The order matters only for reports: a host is counted under the first check that it fails, so what
an operator decided comes before what happens to be full. Settings, decisions and metrics use the
function names.
"""

from __future__ import annotations

from typing import Final

from conductor.scheduling.filters.affinity_filters import hinted, in_group
from conductor.scheduling.filters.aggregate_filters import in_aggregates, in_zone, not_isolated
from conductor.scheduling.filters.capacity_filters import has_amounts, not_crowded
from conductor.scheduling.filters.host_filters import in_cell, in_service, named
from conductor.scheduling.filters.numa_filter import has_numa_cells
from conductor.scheduling.filters.trait_filters import has_capabilities, has_traits
from conductor.scheduling.fleet.filter_verdicts import Filter

DEFAULT_FILTERS: Final[tuple[Filter, ...]] = (
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

PHYSICAL: Final[frozenset[Filter]] = frozenset({named, has_amounts, has_numa_cells})
"""The filters that apply even to a forced request: the requested host, and its capacity."""
