"""Headroom: an estimate, for weighers only, of how many more instances of a shape hosts take.

Computed from the coarse columns: amounts, and for guests with dedicated CPUs the free CPUs and
memory of each NUMA cell. Pages and thread policies are left to the fitter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np

from conductor.scheduling.fleet.fleet_snapshot import Fleet, Floats, Numbers
from conductor.scheduling.fleet.host_columns import (
    capacity_column,
    cell_needs,
    free_cpus,
    free_memory_mib,
    left_column,
)
from conductor.scheduling.request.instance_shape import Shape

SHAPES_WEIGHED: Final = 8
ROUNDING: Final = 1e-9
"""Multiplying by a reciprocal is several times faster than dividing, with this rounding error."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """What is free on some hosts: amounts by class, and CPUs and MiB of NUMA cells by host."""

    left: Mapping[str, Floats]
    cpus: Floats
    memory_mib: Floats

    def after(self, shape: Shape) -> Headroom:
        """Return the headroom after one more instance of the shape on each host."""
        left = {name: free - shape.amounts.get(name, 0) for name, free in self.left.items()}
        needs = cell_needs(shape)
        if needs is None:
            return Headroom(left, self.cpus, self.memory_mib)
        fits = (self.cpus >= needs.cpus) & (self.memory_mib >= needs.memory_mib)
        if needs.cells < len(self.cpus):
            # The fullest cells that fit, which a packing fitter uses.
            fullness = np.where(fits, self.cpus * 2.0**32 + self.memory_mib, np.inf)
            rank = fullness.argsort(axis=0).argsort(axis=0)
            fits &= rank < needs.cells
        return Headroom(
            left, self.cpus - fits * needs.cpus, self.memory_mib - fits * needs.memory_mib
        )

    def then(self, other: Headroom) -> Headroom:
        """Return the headroom of both sets of hosts, so that both are counted at once."""
        left = {name: np.concatenate((free, other.left[name])) for name, free in self.left.items()}
        return Headroom(
            left,
            np.concatenate((self.cpus, other.cpus), axis=1),
            np.concatenate((self.memory_mib, other.memory_mib), axis=1),
        )

    def count(self, shape: Shape) -> Floats:
        """Return how many of the shape fit on each host, never negative."""
        counts = np.full(self.cpus.shape[1], np.inf)
        for name, amount in shape.amounts.items():
            np.minimum(counts, self.left[name] * (1 / amount), out=counts)
        needs = cell_needs(shape)
        if needs is not None:
            by_cell = self.cpus * (1 / max(needs.cpus, 1))
            if needs.memory_mib:
                np.minimum(by_cell, self.memory_mib * (1 / needs.memory_mib), out=by_cell)
            by_cell += ROUNDING
            np.minimum(counts, _guests(np.floor(by_cell, out=by_cell), needs.cells), out=counts)
        counts += ROUNDING
        return np.asarray(np.maximum(np.floor(counts, out=counts), 0.0))


def headroom_of(fleet: Fleet, rows: Numbers, shapes: Iterable[Shape]) -> Headroom:
    """Return the headroom of these rows for these shapes."""
    classes = {name for shape in shapes for name in shape.amounts}
    return Headroom(
        {name: fleet.column(left_column(name))[rows].astype(float) for name in sorted(classes)},
        fleet.cells(free_cpus)[:, rows].astype(float),
        fleet.cells(free_memory_mib)[:, rows].astype(float),
    )


def size_of(shape: Shape, fleet: Fleet) -> float:
    """Return how much of the whole fleet one instance takes, all its classes added."""
    return sum(
        amount / max(1, fleet.total(capacity_column(name)))
        for name, amount in shape.amounts.items()
    )


def usual(fleet: Fleet, requested: Shape) -> list[tuple[Shape, float]]:
    """Return the shapes with the largest recent demand on the fleet, and their weights."""
    counts = dict(fleet.history.requested)
    counts.setdefault(requested, 1)
    sized = [(shape, count, size_of(shape, fleet)) for shape, count in counts.items()]
    sized.sort(key=lambda entry: -entry[1] * entry[2])
    most = sized[:SHAPES_WEIGHED]
    whole = sum(count * size for _, count, size in most) or 1.0
    return [(shape, count * size * size / whole) for shape, count, size in most]


def worth(headroom: Headroom, shapes: Iterable[tuple[Shape, float]]) -> Floats:
    """Return by host how many of these shapes still fit, added up by weight."""
    total = np.zeros(headroom.cpus.shape[1])
    for shape, weight in shapes:
        total += weight * headroom.count(shape)
    return total


def _guests(by_cell: Floats, cells: int) -> Floats:
    """Return how many guests of so many NUMA cells fit, given how often one fits each cell.

    For any i, the guests have at most i of their cells on the i host cells with most headroom, so
    the rest of the host is an upper bound; the least of these bounds is reached.
    """
    if cells == 1:
        return reduce(np.add, np.maximum(by_cell, 0.0))
    if len(by_cell) < cells:
        return np.zeros(by_cell.shape[1])
    if len(by_cell) == cells:
        return reduce(np.minimum, by_cell)
    rising = np.cumsum(np.sort(np.maximum(by_cell, 0.0), axis=0), axis=0)
    bounds = [rising[-1 - roomiest] // (cells - roomiest) for roomiest in range(cells)]
    return np.asarray(np.minimum.reduce(bounds))
