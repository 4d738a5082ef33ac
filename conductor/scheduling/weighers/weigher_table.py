"""The table of built-in weighers: a new weigher is a function in a module here, and a row below.

A weigher gives every row a weight of about 1 at most, higher is better, or one number where all
rows are equal to it. Weights are multiplied and added, so that the weigher with the greater
multiplier decides first. An aggregate may have multipliers of its own for its hosts (metadata
`NAME_weight_multiplier`; of several the least). Settings, decisions and metadata use the function
names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from conductor.scheduling.fleet.fleet_snapshot import Fleet, Floats, Numbers
from conductor.scheduling.request.request_spec import RequestSpec
from conductor.scheduling.weighers.capacity_weighers import (
    cpus_left,
    devices_left_alone,
    disk_left,
    memory_left,
    room_left,
    usual_room_kept,
)
from conductor.scheduling.weighers.group_weighers import (
    homes_left_alone,
    room_to_grow,
    soft_group,
)
from conductor.scheduling.weighers.host_weighers import (
    few_instances,
    in_use,
    less_busy,
    own_cell,
    own_host,
    trustworthy,
)

Weigher: TypeAlias = Callable[[RequestSpec, Fleet, Numbers], Floats | float]

COMMON: Final[tuple[tuple[Weigher, float], ...]] = (
    (trustworthy, 100_000.0),
    (room_to_grow, 10_000.0),
    (homes_left_alone, 1_000.0),
    (devices_left_alone, 200.0),
    (soft_group, 100.0),
)
SPREAD: Final = (*COMMON, (room_left, 1.0))
PACK: Final = (*COMMON, (in_use, 10.0), (usual_room_kept, 1.0))

OPTIONAL: Final[tuple[Weigher, ...]] = (
    less_busy,
    few_instances,
    own_host,
    own_cell,
    cpus_left,
    memory_left,
    disk_left,
)
"""Weighers in force only where the settings give them a multiplier."""

WEIGHERS: Final[Mapping[str, Weigher]] = {
    weigher.__name__: weigher
    for weigher in (*(weigher for weigher, _ in (*SPREAD, *PACK)), *OPTIONAL)
}
