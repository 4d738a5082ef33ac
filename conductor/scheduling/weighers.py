"""The weighers: which of the possible hosts is best, each a plain function over rows of the fleet.

A weigher gives every row a weight between 0 and about 1, higher is better; the settings
multiply and add them, so that what has the greater multiplier decides first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from conductor.scheduling.columns import capacity_column, left_column
from conductor.scheduling.demand import Demand
from conductor.scheduling.fleet import Fleet, Numbers
from conductor.scheduling.room import Floats, room_of, usual, worth
from conductor.store.records import Host

Weigher: TypeAlias = Callable[[Demand, Fleet, Numbers], Floats]


def room_to_grow(demand: Demand, fleet: Fleet, rows: Numbers) -> Floats:
    """Where a group starts: in the place with most room for what is usually asked.

    Members that come later have to follow the first one (of their domain), so a place that
    only just takes the first would turn the others away. Groups that live in one place
    share its room.
    """
    rule = demand.group
    if rule is None or not rule.hard or rule.policy == "anti-affinity":
        return np.zeros(len(rows))
    if any(rule.together or member.domain == rule.domain for member in rule.members):
        return np.zeros(len(rows))
    shapes = usual(fleet, demand.shape)
    labels = fleet.labels(rule.scope)[rows]
    room = worth(room_of(fleet, rows, [shape for shape, _ in shapes]), shapes)
    whole = np.bincount(labels, room, minlength=len(fleet))
    for place, groups in Counter(_homes(demand, fleet).get(rule.scope, ())).items():
        whole[place] = whole[place] / (1 + groups)
    return np.asarray(whole[labels] / max(whole.max(), np.finfo(float).tiny))


def homes_left_alone(demand: Demand, fleet: Fleet, rows: Numbers) -> Floats:
    """Elsewhere than where a group lives that cannot go elsewhere."""
    weights = np.ones(len(rows))
    for scope, places in _homes(demand, fleet).items():
        weights[fleet.at(scope, places)[rows]] = 0.0
    return weights


def _homes(demand: Demand, fleet: Fleet) -> dict[str, list[int]]:
    """Return the places where other groups live, by scope, as often as groups live there."""
    own = None if demand.group is None else demand.group.name
    homes: dict[str, list[int]] = {}
    for scope, host in fleet.habits.homes(besides=own):
        place = fleet.place_of(scope, host)
        if place is not None:
            homes.setdefault(scope, []).append(place)
    return homes


def soft_group(demand: Demand, fleet: Fleet, rows: Numbers) -> Floats:
    """Beside the members of a soft affinity group, away from those of a soft anti-affinity one."""
    weights = np.zeros(len(rows))
    rule = demand.group
    if rule is None or rule.hard or not rule.members:
        return weights
    labels = fleet.labels(rule.scope)[rows]
    for member in rule.members:
        place = fleet.place_of(rule.scope, member.host)
        if place is not None:
            weights[labels == place] += 1.0 if rule.together else -1.0
    return weights / len(rule.members)


def room_left(demand: Demand, fleet: Fleet, rows: Numbers) -> Floats:
    """The host that keeps most free, as a share of its own, of the class it is shortest of."""
    weights = np.ones(len(rows))
    for name, amount in demand.shape.amounts.items():
        left = fleet.column(left_column(name))[rows] - amount
        size = fleet.column(capacity_column(name))[rows]
        np.minimum(weights, left / np.maximum(size, 1), out=weights)
    return weights


def in_use(_demand: Demand, fleet: Fleet, rows: Numbers) -> Floats:
    """A host that has instances already."""
    return (fleet.column(instances)[rows] > 0).astype(np.float64)


def usual_room_kept(demand: Demand, fleet: Fleet, rows: Numbers) -> Floats:
    """Where the instance costs least room for what is usually asked, whole hosts included.

    A small instance goes where a large one would not fit anyway, and large spaces stay
    whole. Among equals on empty hosts the largest, on used ones the fullest. Only the
    `NEAREST` tightest hosts are looked at, used ones first, so that the cost is flat.
    """
    shapes = usual(fleet, demand.shape)
    left = _left_in_all(demand, fleet, rows)
    empty = fleet.column(instances)[rows] == 0
    near = np.arange(len(rows))
    if len(rows) > NEAREST:
        near = np.argpartition(left + empty * len(demand.shape.amounts), NEAREST)[:NEAREST]
    room = room_of(fleet, rows[near], [shape for shape, _ in shapes])
    lost = worth(room, shapes) - worth(room.after(demand.shape), shapes)
    lost += TIE * np.where(empty, -left, left)[near]
    weights = np.zeros(len(rows))
    weights[near] = 1.0 - lost / max(lost.max(), np.finfo(float).tiny)
    return weights


def _left_in_all(demand: Demand, fleet: Fleet, rows: Numbers) -> Floats:
    """Return what is left of the classes asked for, each as a share of the largest host's."""
    left = np.zeros(len(rows))
    for name in demand.shape.amounts:
        most = max(1, int(fleet.column(capacity_column(name)).max()))
        left += fleet.column(left_column(name))[rows] / most
    return left


def instances(host: Host) -> int:
    """Return how many instances a host has: the column."""
    return host.instances


TIE: Final = 1e-6
NEAREST: Final = 1024

COMMON: Final[tuple[tuple[Weigher, float], ...]] = (
    (room_to_grow, 10_000.0),
    (homes_left_alone, 1_000.0),
    (soft_group, 100.0),
)
SPREAD: Final = (*COMMON, (room_left, 1.0))
PACK: Final = (*COMMON, (in_use, 10.0), (usual_room_kept, 1.0))
