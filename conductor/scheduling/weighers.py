"""The weighers: which of the possible hosts is best, each a plain function over the fleet.

A weigher gives every row a weight, higher is better; the settings multiply and add them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from conductor.placement.resources import capacity
from conductor.scheduling.demand import Demand
from conductor.scheduling.filters import left_column
from conductor.scheduling.fleet import Fleet, HostColumn
from conductor.store.records import Host

Weights: TypeAlias = NDArray[np.float64]
Weigher: TypeAlias = Callable[[Demand, Fleet], Weights]


def room_left(demand: Demand, fleet: Fleet) -> Weights:
    """Return what stays free of the scarcest class asked for, as a share of the host's own."""
    weights = np.ones(len(fleet))
    for name, amount in demand.shape.amounts.items():
        left, size = fleet.column(left_column(name)), fleet.column(_capacity_column(name))
        np.minimum(weights, (left - amount) / np.maximum(size, 1), out=weights)
    return weights


def room_taken(demand: Demand, fleet: Fleet) -> Weights:
    """Return the opposite: fullest first."""
    return -room_left(demand, fleet)


def soft_group(demand: Demand, fleet: Fleet) -> Weights:
    """Return how well each host keeps a soft group rule: members beside it, or their absence."""
    weights = np.zeros(len(fleet))
    rule = demand.group
    if rule is None or rule.hard or not rule.members:
        return weights
    labels = fleet.labels(rule.scope)
    for member in rule.members:
        row = fleet.rows.get(member.host)
        if row is not None:
            weights[labels == labels[row]] += 1 if rule.together else -1
    return weights / len(rule.members)


SPREAD: Final[tuple[tuple[Weigher, float], ...]] = ((soft_group, 10.0), (room_left, 1.0))
PACK: Final[tuple[tuple[Weigher, float], ...]] = ((soft_group, 10.0), (room_taken, 1.0))


_columns: dict[str, HostColumn] = {}


def _capacity_column(resource_class: str) -> HostColumn:
    if resource_class not in _columns:

        def size(host: Host) -> int:
            inventory = host.inventory.get(resource_class)
            return 0 if inventory is None else capacity(inventory)

        _columns[resource_class] = size
    return _columns[resource_class]
