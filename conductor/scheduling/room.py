"""How many more instances of a shape each host could take: an estimate, for weighing only.

Counted from the coarse columns: amounts, and for guests with dedicated CPUs the free CPUs
and memory of each NUMA cell. Pages and thread policies are left to the fitter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from conductor.scheduling.columns import (
    capacity_column,
    cell_needs,
    free_cpus,
    free_memory_mib,
    left_column,
)
from conductor.scheduling.demand import Shape
from conductor.scheduling.fleet import Fleet, Numbers

Floats: TypeAlias = NDArray[np.float64]

SHAPES_WEIGHED: Final = 8


@dataclass(frozen=True, slots=True)
class Room:
    """What is free on some hosts: amounts by class, and by NUMA cell."""

    left: Mapping[str, Numbers]
    cpus: Numbers
    memory_mib: Numbers

    def after(self, shape: Shape) -> Room:
        """Return the room as it is once each of these hosts has taken the shape."""
        left = {name: free - shape.amounts.get(name, 0) for name, free in self.left.items()}
        needs = cell_needs(shape)
        if needs is None:
            return Room(left, self.cpus, self.memory_mib)
        cpus, memory_mib = self.cpus.copy(), self.memory_mib.copy()
        fits = (cpus >= needs.cpus) & (memory_mib >= needs.memory_mib)
        # The fullest cells that fit, which is where a packing fitter goes.
        fullness = np.where(fits, cpus * float(2**32) + memory_mib, np.inf)
        taken = np.argsort(fullness, axis=1)[:, : needs.cells]
        rows = np.arange(len(cpus))[:, None]
        cpus[rows, taken] -= needs.cpus
        memory_mib[rows, taken] -= needs.memory_mib
        return Room(left, cpus, memory_mib)

    def count(self, shape: Shape) -> Floats:
        """Return how many of the shape fit on each host, never negative."""
        counts = np.full(len(self.cpus), np.inf)
        for name, amount in shape.amounts.items():
            np.minimum(counts, self.left[name] // amount, out=counts)
        needs = cell_needs(shape)
        if needs is not None:
            by_cell = self.cpus // max(needs.cpus, 1)
            if needs.memory_mib:
                by_cell = np.minimum(by_cell, self.memory_mib // needs.memory_mib)
            np.minimum(counts, _guests(np.maximum(by_cell, 0), needs.cells), out=counts)
        return np.asarray(np.maximum(counts, 0))


def room_of(fleet: Fleet, rows: Numbers, shapes: Iterable[Shape]) -> Room:
    """Return the room on these rows, as far as these shapes need it."""
    classes = {name for shape in shapes for name in shape.amounts}
    return Room(
        {name: fleet.column(left_column(name))[rows] for name in sorted(classes)},
        fleet.cells(free_cpus)[rows],
        fleet.cells(free_memory_mib)[rows],
    )


def size_of(shape: Shape, fleet: Fleet) -> float:
    """Return how much of the whole fleet one instance takes, all its classes added."""
    return sum(
        amount / max(1, fleet.total(capacity_column(name)))
        for name, amount in shape.amounts.items()
    )


def usual(fleet: Fleet, asked: Shape) -> list[tuple[Shape, float]]:
    """Return the shapes that ask for most of the fleet, and their weights, the last one too."""
    counts = dict(fleet.habits.asked)
    counts.setdefault(asked, 1)
    sized = [(shape, count, size_of(shape, fleet)) for shape, count in counts.items()]
    sized.sort(key=lambda each: -each[1] * each[2])
    most = sized[:SHAPES_WEIGHED]
    whole = sum(count * size for _, count, size in most) or 1.0
    return [(shape, count * size * size / whole) for shape, count, size in most]


def worth(room: Room, shapes: Iterable[tuple[Shape, float]]) -> Floats:
    """Return what the hosts could still take of these shapes, added up by weight."""
    total = np.zeros(len(room.cpus))
    for shape, weight in shapes:
        total += weight * room.count(shape)
    return total


def _guests(by_cell: Numbers, cells: int) -> Numbers:
    """Return how many guests of so many NUMA cells fit, given how often one fits each cell.

    For any i, the guests have at most i of their cells on the i roomiest host cells, so the
    rest of the host bounds them; the least bound can be reached.
    """
    if cells == 1:
        return np.asarray(by_cell.sum(axis=1))
    if by_cell.shape[1] < cells:
        return np.zeros(len(by_cell), np.int64)
    rising = np.cumsum(np.sort(by_cell, axis=1), axis=1)
    bounds = [rising[:, -1 - roomiest] // (cells - roomiest) for roomiest in range(cells)]
    return np.asarray(np.minimum.reduce(bounds))
