"""The weighers: which of the possible hosts is best, each a plain function over rows of the fleet.

A weigher gives every row a weight of about 1 at most, higher is better, or one number where all
are alike to it; the settings multiply and add them, so that what has the greater multiplier
decides first. An aggregate may have multipliers of its own for its hosts (metadata
`NAME_weight_multiplier`; of several the least).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from conductor.placement.resources import DISK_GB, MEMORY_MB, PCPU, VCPU
from conductor.scheduling.fleet.fleet_snapshot import Fleet, Numbers
from conductor.scheduling.fleet.host_columns import (
    capacity_column,
    free_devices,
    instances,
    left_column,
)
from conductor.scheduling.request.request_spec import RequestSpec
from conductor.scheduling.weighers.headroom import Floats, headroom_of, usual, worth

Weigher: TypeAlias = Callable[[RequestSpec, Fleet, Numbers], Floats | float]


def room_to_grow(spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats | float:
    """Where a group starts: in the place with most room for what is usually asked.

    Members that come later have to follow the first one (of their domain), so a place that
    only just takes the first would turn the others away. Groups that live in one place
    share its room.
    """
    rule = spec.group
    if rule is None or not rule.hard or rule.policy == "anti-affinity":
        return 0.0
    if any(rule.together or member.domain == rule.domain for member in rule.members):
        return 0.0
    shapes = usual(fleet, spec.shape)
    labels = fleet.labels(rule.scope)[rows]
    room = worth(headroom_of(fleet, rows, [shape for shape, _ in shapes]), shapes)
    whole = np.bincount(labels, room, minlength=len(fleet))
    for place, groups in Counter(_homes(spec, fleet).get(rule.scope, ())).items():
        whole[place] = whole[place] / (1 + groups)
    return np.asarray(whole[labels] / max(whole.max(), np.finfo(float).tiny))


def homes_left_alone(spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats | float:
    """Elsewhere than where a group lives that cannot go elsewhere."""
    homes = _homes(spec, fleet)
    if not homes:
        return 0.0
    weights = np.ones(len(rows))
    for scope, places in homes.items():
        weights[fleet.at(scope, places)[rows]] = 0.0
    return weights


def _homes(spec: RequestSpec, fleet: Fleet) -> dict[str, list[int]]:
    """Return the places where other groups live, by scope, as often as groups live there."""
    own = None if spec.group is None else spec.group.name
    homes: dict[str, list[int]] = {}
    for scope, host in fleet.history.homes(besides=own):
        place = fleet.place_of(scope, host)
        if place is not None:
            homes.setdefault(scope, []).append(place)
    return homes


def soft_group(spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats | float:
    """Beside the members of a soft affinity group, away from those of a soft anti-affinity one."""
    rule = spec.group
    if rule is None or rule.hard or not rule.members:
        return 0.0
    weights = np.zeros(len(rows))
    labels = fleet.labels(rule.scope)[rows]
    for member in rule.members:
        place = fleet.place_of(rule.scope, member.host)
        if place is not None:
            weights[labels == place] += 1.0 if rule.together else -1.0
    return np.asarray(weights / len(rule.members))


def room_left(spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats:
    """The host that keeps most free, as a share of its own, of the class it is shortest of."""
    weights = np.ones(len(rows))
    for name, amount in spec.shape.amounts.items():
        left = fleet.column(left_column(name))[rows] - amount
        size = fleet.column(capacity_column(name))[rows]
        np.minimum(weights, left / np.maximum(size, 1), out=weights)
    return weights


def cpus_left(spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats:
    """The host with most CPUs left of the kind that is asked for, dedicated before shared."""
    return _left_of(PCPU if PCPU in spec.shape.amounts else VCPU, fleet, rows)


def memory_left(_spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats:
    """The host with most memory left."""
    return _left_of(MEMORY_MB, fleet, rows)


def disk_left(_spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats:
    """The host with most disk left."""
    return _left_of(DISK_GB, fleet, rows)


def own_cell(spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats | float:
    """A host in the deployment cell that the instance is in: another one has to be copied to."""
    source = fleet.get(spec.source or "")
    if source is None:
        return 0.0
    same = (fleet.hosts[row].cell_id == source.cell_id for row in rows)
    return np.fromiter(same, np.float64, len(rows))


def in_use(_spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats:
    """A host that has instances already."""
    return (fleet.column(instances)[rows] > 0).astype(np.float64)


def usual_room_kept(spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats:
    """Where the instance costs least room for what is usually asked, whole hosts included.

    A small instance goes where a large one would not fit anyway, and large spaces stay
    whole. Among equals on empty hosts the largest, on used ones the fullest. Only the
    `NEAREST` tightest hosts are looked at, used ones first, so that the cost is flat.
    """
    shapes = usual(fleet, spec.shape)
    left = _left_in_all(spec, fleet, rows)
    empty = fleet.column(instances)[rows] == 0
    near = np.arange(len(rows))
    if len(rows) > NEAREST:
        near = np.argpartition(left + empty * len(spec.shape.amounts), NEAREST)[:NEAREST]
    room = headroom_of(fleet, rows[near], [shape for shape, _ in shapes])
    before, after = worth(room.then(room.after(spec.shape)), shapes).reshape(2, -1)
    lost = before - after
    lost += TIE * np.where(empty, -left, left)[near]
    weights = np.zeros(len(rows))
    weights[near] = 1.0 - lost / max(lost.max(), np.finfo(float).tiny)
    return weights


def trustworthy(_spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats | float:
    """A host that has not failed lately what was placed there.

    The emptiest host of a fleet is often the one on which nothing works.
    """
    failed = fleet.history.failures()
    if not failed:
        return 0.0
    weights = np.zeros(len(rows))
    for name, failures in failed.items():
        if name in fleet.rows:
            weights[rows == fleet.rows[name]] = -min(1.0, failures / FAILED_OFTEN)
    return weights


def less_busy(_spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats:
    """A host for which few operations wait, as a share of the busiest."""
    busy = fleet.busy[rows]
    return np.asarray(1.0 - busy / max(1, int(fleet.busy.max(initial=0))))


def own_host(spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats | float:
    """The host that an instance is on already, where it may be resized in place."""
    row = fleet.rows.get(spec.source or "")
    return 0.0 if row is None else np.asarray(rows == row, np.float64)


def few_instances(_spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats:
    """A host with few instances, as a share of the most that any has."""
    column = fleet.column(instances)
    return np.asarray(1.0 - column[rows] / max(1, int(column.max(initial=0))))


def devices_left_alone(spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats | float:
    """Where no devices are wanted, a host that has none free."""
    if spec.shape.devices:
        return 0.0
    return np.asarray(fleet.column(free_devices)[rows] == 0, np.float64)


def _left_of(name: str, fleet: Fleet, rows: Numbers) -> Floats:
    """Return what is left of a class, as a share of the most that any host has left."""
    left = np.maximum(fleet.column(left_column(name)), 0)
    return np.asarray(left[rows] / max(1, int(left.max(initial=0))))


def _left_in_all(spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats:
    """Return what is left of the classes asked for, each as a share of the largest host's."""
    left = np.zeros(len(rows))
    for name in spec.shape.amounts:
        most = max(1, int(fleet.column(capacity_column(name)).max()))
        left += fleet.column(left_column(name))[rows] / most
    return left


FAILED_OFTEN: Final = 4.0
TIE: Final = 1e-6
NEAREST: Final = 1024

COMMON: Final[tuple[tuple[Weigher, float], ...]] = (
    (trustworthy, 100_000.0),
    (room_to_grow, 10_000.0),
    (homes_left_alone, 1_000.0),
    (devices_left_alone, 200.0),
    (soft_group, 100.0),
)
SPREAD: Final = (*COMMON, (room_left, 1.0))
PACK: Final = (*COMMON, (in_use, 10.0), (usual_room_kept, 1.0))
