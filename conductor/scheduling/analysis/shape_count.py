"""How many instances of one shape a host takes on its own, without providers other than itself."""

from __future__ import annotations

from dataclasses import replace

from conductor.placement.resources import most_of
from conductor.scheduling.filters.capacity_filters import UNBOUNDED
from conductor.scheduling.fleet.host_columns import left_column
from conductor.scheduling.request.instance_shape import Shape
from conductor.scheduling.request.shape_placement import limits_of, place
from conductor.store import Host
from models.hardware import HostTopology, Limits, Misfit, accounting


class ShapeCounter:
    """Counts by claiming one after the other; equal hosts are computed once."""

    def __init__(self, shape: Shape, *, pack: bool) -> None:
        self._shape = shape
        self._pack = pack
        self._known: dict[tuple[HostTopology, int, Limits], int] = {}

    def of(self, host: Host) -> int:
        """Return how many instances fit; `UNBOUNDED` where the shape has no amounts."""
        bound = _by_amounts(host, self._shape)
        if not self._shape.has_place or not bound:
            return bound
        key = (host.topology, bound, limits_of(host))
        if key not in self._known:
            self._known[key] = self._fill(host, bound)
        return self._known[key]

    def _fill(self, host: Host, bound: int) -> int:
        for count in range(bound):
            answer = place(self._shape, host, pack=self._pack)
            if isinstance(answer, Misfit):
                return count
            if answer is None:
                break
            host = replace(host, topology=accounting.claim(host.topology, answer))
        return bound


def _by_amounts(host: Host, shape: Shape) -> int:
    """Return how often the amounts fit; 0 where even one is larger than the host."""
    bound = UNBOUNDED
    for name, amount in shape.amounts.items():
        if most_of(host, name) < amount:
            return 0
        bound = min(bound, max(0, left_column(name)(host)) // amount)
    return bound
