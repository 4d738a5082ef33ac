"""How many instances of a request spec hosts take, with the providers that they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from conductor.placement.local.host_claims import HostAllocation, with_allocations
from conductor.scheduling.analysis.shape_count import ShapeCounter
from conductor.scheduling.filters.capacity_filters import UNBOUNDED, instances_left, not_crowded
from conductor.scheduling.fleet.fleet_snapshot import Fleet
from conductor.scheduling.request.request_spec import RequestSpec
from conductor.scheduling.request.shape_placement import place
from conductor.scheduling.request.shared_providers import allocation_candidate
from conductor.scheduling.settings import SchedulingSettings
from conductor.store import Host
from models.hardware import Misfit


class HostCounter:
    """Fills hosts of a fleet with instances; the fleet is left as it was."""

    def __init__(self, spec: RequestSpec, fleet: Fleet, settings: SchedulingSettings) -> None:
        self._spec = spec
        self._fleet = fleet
        self._settings = settings
        self._counts = ShapeCounter(spec.shape, pack=settings.pack)

    @property
    def uses_other_providers(self) -> bool:
        """Whether providers other than hosts may serve the request: counts then depend on order."""
        shape = self._spec.shape
        return len(shape.request.groups) > 1 or self._fleet.providers.offers(shape.least)

    def fill(self, hosts: Iterable[Host]) -> Mapping[str, int]:
        """Return how many instances each of these hosts takes, one host filled after the other.

        Hosts that take none are left out.
        """
        crowded = not_crowded in self._settings.filters_for(self._spec)
        left = instances_left(self._fleet) if crowded else None
        found = {}
        with self._fleet.rehearsal():
            for host in hosts:
                most = UNBOUNDED if left is None else int(left[self._fleet.rows[host.name]])
                if count := self._count(host, most):
                    found[host.name] = count
        return found

    def _count(self, host: Host, most: int) -> int:
        """Return how many instances a host takes with what is left of other providers."""
        if not self.uses_other_providers:
            return min(most, self._counts.of(host))
        near, shared = self._fleet.providers.near(host)
        count, shape = 0, self._spec.shape
        while count < most:
            candidate = allocation_candidate(host, shape.request, near, {})
            answer = place(shape, host, pack=self._settings.pack)
            if candidate is None or isinstance(answer, Misfit):
                break
            allocation = HostAllocation("", "", answer, candidate.host_amounts)
            host = with_allocations(host, [allocation], host.updated_at)
            near = near.allocate(candidate.provider_amounts)
            count += 1
        if shared and count:
            # Only the use of sharing providers matters to other hosts.
            left = {name: near.get(name) for name in shared}
            self._fleet.providers = self._fleet.providers.newer(left)
        return count
