"""Weighers on free capacity: spread by what is left, pack by what is kept whole."""

from __future__ import annotations

from typing import Final

import numpy as np

from conductor.placement.resources import DISK_GB, MEMORY_MB, PCPU, VCPU
from conductor.scheduling.fleet.fleet_snapshot import Fleet, Floats, Numbers
from conductor.scheduling.fleet.host_columns import (
    capacity_column,
    free_devices,
    instances,
    left_column,
)
from conductor.scheduling.request.request_spec import RequestSpec
from conductor.scheduling.weighers.headroom import headroom_of, usual, worth

TIE: Final = 1e-6
NEAREST: Final = 1024


def room_left(spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats:
    """The host with the largest free share of its scarcest class after the allocation."""
    weights = np.ones(len(rows))
    for name, amount in spec.shape.amounts.items():
        left = fleet.column(left_column(name))[rows] - amount
        size = fleet.column(capacity_column(name))[rows]
        np.minimum(weights, left / np.maximum(size, 1), out=weights)
    return weights


def cpus_left(spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats:
    """The host with most free CPUs of the requested kind, dedicated before shared."""
    return _left_of(PCPU if PCPU in spec.shape.amounts else VCPU, fleet, rows)


def memory_left(_spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats:
    """The host with most free memory."""
    return _left_of(MEMORY_MB, fleet, rows)


def disk_left(_spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats:
    """The host with most free disk."""
    return _left_of(DISK_GB, fleet, rows)


def usual_room_kept(spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats:
    """The host that loses least headroom for the usual shapes, empty hosts included.

    A small instance goes where a large one would not fit anyway, so that large free blocks stay
    whole. Ties: of empty hosts the largest, of used ones the fullest. Only the `NEAREST` tightest
    hosts are weighed, used ones first, which bounds the cost.
    """
    shapes = usual(fleet, spec.shape)
    left = _left_in_all(spec, fleet, rows)
    empty = fleet.column(instances)[rows] == 0
    near = np.arange(len(rows))
    if len(rows) > NEAREST:
        near = np.argpartition(left + empty * len(spec.shape.amounts), NEAREST)[:NEAREST]
    headroom = headroom_of(fleet, rows[near], [shape for shape, _ in shapes])
    before, after = worth(headroom.then(headroom.after(spec.shape)), shapes).reshape(2, -1)
    lost = before - after
    lost += TIE * np.where(empty, -left, left)[near]
    weights = np.zeros(len(rows))
    weights[near] = 1.0 - lost / max(lost.max(), np.finfo(float).tiny)
    return weights


def devices_left_alone(spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats | float:
    """For an instance without devices, a host that has none free."""
    if spec.shape.devices:
        return 0.0
    return np.asarray(fleet.column(free_devices)[rows] == 0, np.float64)


def _left_of(name: str, fleet: Fleet, rows: Numbers) -> Floats:
    """Return the free amount of a class, as a share of the most that any host has free."""
    left = np.maximum(fleet.column(left_column(name)), 0)
    return np.asarray(left[rows] / max(1, int(left.max(initial=0))))


def _left_in_all(spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats:
    """Return the sum of the free amounts of requested classes, as shares of the largest host's."""
    left = np.zeros(len(rows))
    for name in spec.shape.amounts:
        most = max(1, int(fleet.column(capacity_column(name)).max()))
        left += fleet.column(left_column(name))[rows] / most
    return left
