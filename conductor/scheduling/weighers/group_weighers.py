"""Weighers on server groups: where one starts, where others are, soft rules."""

from __future__ import annotations

from collections import Counter

import numpy as np

from conductor.scheduling.fleet.fleet_snapshot import Fleet, Floats, Numbers
from conductor.scheduling.request.request_spec import RequestSpec
from conductor.scheduling.weighers.headroom import headroom_of, usual, worth


def room_to_grow(spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats | float:
    """For a group's first member: the place with most headroom for the usual shapes.

    Later members have to follow the first one (of their domain), so a place that only just takes
    the first would refuse the others. Groups in the same place share its headroom.
    """
    rule = spec.group
    if rule is None or not rule.hard or rule.policy == "anti-affinity":
        return 0.0
    if any(rule.together or member.domain == rule.domain for member in rule.members):
        return 0.0
    shapes = usual(fleet, spec.shape)
    labels = fleet.labels(rule.scope)[rows]
    headroom = worth(headroom_of(fleet, rows, [shape for shape, _ in shapes]), shapes)
    whole = np.bincount(labels, headroom, minlength=len(fleet))
    for place, groups in Counter(_homes(spec, fleet).get(rule.scope, ())).items():
        whole[place] = whole[place] / (1 + groups)
    return np.asarray(whole[labels] / max(whole.max(), np.finfo(float).tiny))


def homes_left_alone(spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats | float:
    """Away from places of groups that have to stay together there."""
    homes = _homes(spec, fleet)
    if not homes:
        return 0.0
    weights = np.ones(len(rows))
    for scope, places in homes.items():
        weights[fleet.at(scope, places)[rows]] = 0.0
    return weights


def soft_group(spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats | float:
    """With the members of a soft affinity group, away from those of a soft anti-affinity one."""
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


def _homes(spec: RequestSpec, fleet: Fleet) -> dict[str, list[int]]:
    """Return the places of other groups, by scope, once for each group."""
    own = None if spec.group is None else spec.group.name
    homes: dict[str, list[int]] = {}
    for scope, host in fleet.history.homes(besides=own):
        place = fleet.place_of(scope, host)
        if place is not None:
            homes.setdefault(scope, []).append(place)
    return homes
