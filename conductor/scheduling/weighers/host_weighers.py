"""Weighers on the host itself: failures, load, instances, where an instance moves from."""

from __future__ import annotations

from typing import Final

import numpy as np

from conductor.scheduling.fleet.fleet_snapshot import Fleet, Floats, Numbers
from conductor.scheduling.fleet.host_columns import instances
from conductor.scheduling.request.request_spec import RequestSpec

FAILED_OFTEN: Final = 4.0


def trustworthy(_spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats | float:
    """A host on which no build or move has failed lately.

    Failures free capacity: without this, the emptiest host is often one on which nothing works.
    """
    failed = fleet.history.failures()
    if not failed:
        return 0.0
    weights = np.zeros(len(rows))
    for name, failures in failed.items():
        if name in fleet.rows:
            weights[rows == fleet.rows[name]] = -min(1.0, failures / FAILED_OFTEN)
    return weights


def in_use(_spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats:
    """A host that has instances already."""
    return (fleet.column(instances)[rows] > 0).astype(np.float64)


def few_instances(_spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats:
    """A host with few instances, as a share of the most that any has."""
    column = fleet.column(instances)
    return np.asarray(1.0 - column[rows] / max(1, int(column.max(initial=0))))


def less_busy(_spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats:
    """A host for which few operations wait, as a share of the busiest."""
    busy = fleet.busy[rows]
    return np.asarray(1.0 - busy / max(1, int(fleet.busy.max(initial=0))))


def own_host(spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats | float:
    """The host that an instance is on already, where it may be resized in place."""
    row = fleet.rows.get(spec.source or "")
    return 0.0 if row is None else np.asarray(rows == row, np.float64)


def own_cell(spec: RequestSpec, fleet: Fleet, rows: Numbers) -> Floats | float:
    """A host in the instance's deployment cell: to another one the disk would be copied."""
    source = fleet.get(spec.source or "")
    if source is None:
        return 0.0
    same = (fleet.hosts[row].cell_id == source.cell_id for row in rows)
    return np.fromiter(same, np.float64, len(rows))
