"""The fleet as the scheduler sees it, with its guests, for `explain`, `what-if` and `capacity`.

It is read in one transaction; what is tried on it stays in this process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from conductor.cli.inspected_requests import (
    InstanceRequirements,
    instance_spec,
    moving_instance_spec,
    new_instance_spec,
)
from conductor.cli.store_queries import chunks
from conductor.placement.local.host_claims import HostAllocation, without_allocation
from conductor.placement.providers import Resources
from conductor.processes.scheduling_options import scheduling_settings
from conductor.scheduling.analysis.what_if import Guest
from conductor.scheduling.fleet_cache import FleetCache
from conductor.scheduling.request.request_spec import RequestSpec
from conductor.scheduling.request.shared_providers import ProviderAmounts
from conductor.scheduling.settings import SchedulingSettings
from conductor.settings import Settings
from conductor.store import Allocation, Instance, UnitOfWork
from models.hardware import FrozenMap
from models.lifecycle import UNFINISHED, InstanceState


class FleetInspection:
    """The fleet and its guests, within one reading transaction."""

    def __init__(self, uow: UnitOfWork, settings: Settings) -> None:
        self._uow = uow
        # Without chance: the same query has the same answer.
        self.settings: SchedulingSettings = replace(scheduling_settings(settings), seed=None)
        cache = FleetCache(self.settings)
        cache.refresh(uow)
        self.fleet = cache.fleet
        self.now = uow.now

    def request_spec_of(self, requirements: InstanceRequirements) -> RequestSpec:
        """Return the request spec of a new instance; raise `Rejected` for an unknown name."""
        return new_instance_spec(self._uow, self.fleet, requirements)

    def request_spec_again(self, instance: Instance, operation_id: str) -> RequestSpec:
        """Return what an operation would request for an instance now, with its own use released.

        The allocations of the instance, and of a move of it, are released on this fleet.
        """
        moves = self._uow.migrations.where(instance_id=instance.id, operation_id=operation_id)
        for consumer in (instance.id, *(move.id for move in moves)):
            for allocation in self._uow.allocations.where(consumer_id=consumer):
                self._release(allocation, instance)
        return moving_instance_spec(
            self._uow, instance, operation_id, moves[-1].id if moves else None
        )

    def guests_of(self, hosts: Iterable[str]) -> Mapping[str, Sequence[Guest]]:
        """Return the guests of these hosts, without the source allocations of moves."""
        names = sorted(set(hosts))
        guests: dict[str, list[Guest]] = defaultdict(list)
        for some in chunks(names):
            allocations = {
                (allocation.consumer_id, allocation.provider): allocation
                for allocation in self._uow.allocations.where(
                    provider=some, consumer_kind="instance"
                )
            }
            for instance in self._uow.instances.where(host=some):
                allocation = allocations.get((instance.id, instance.host or ""))
                if allocation is not None:
                    guests[allocation.provider].append(self._guest(instance, allocation))
        return guests

    def movable_on(self, host: str) -> Sequence[Guest]:
        """Return the guests of a host that could be moved now: no operation, no move."""
        resting = {
            instance.id
            for instance in self._uow.instances.where(host=host)
            if instance.operation_id is None
            and instance.state in (InstanceState.ACTIVE, InstanceState.STOPPED)
        }
        busy = {
            move.instance_id
            for move in self._uow.migrations.where(state=tuple(UNFINISHED))
            if move.instance_id in resting
        }
        guests = self.guests_of([host]).get(host, ())
        return [guest for guest in guests if guest.instance_id in resting - busy]

    def _guest(self, instance: Instance, allocation: Allocation) -> Guest:
        on_host = HostAllocation(
            instance.id, allocation.project_id, instance.placement, allocation.amounts
        )
        shared = self._shared_allocations.get(instance.id, FrozenMap({}))
        spec = instance_spec(self._uow, instance)
        return Guest(instance.id, instance.name, on_host, spec, shared)

    @cached_property
    def _shared_allocations(self) -> Mapping[str, ProviderAmounts]:
        """Allocations of providers that are no hosts, by instance."""
        found: dict[str, dict[str, Resources]] = defaultdict(dict)
        names = self.fleet.providers.names
        for some in chunks(sorted(names)):
            for allocation in self._uow.allocations.where(provider=some, consumer_kind="instance"):
                found[allocation.consumer_id][names[allocation.provider]] = allocation.amounts
        return found

    def _release(self, allocation: Allocation, instance: Instance) -> None:
        host = self.fleet.get(allocation.provider)
        if host is None:
            for provider in self._uow.providers.where(name=allocation.provider):
                amounts = {provider.id: allocation.amounts}
                self.fleet.providers = self.fleet.providers.release(amounts)
            return
        placement = next(iter(self._placements(allocation, instance)), None)
        on_host = HostAllocation(
            allocation.consumer_id, allocation.project_id, placement, allocation.amounts
        )
        self.fleet.put(without_allocation(host, on_host, self.now))

    def _placements(self, allocation: Allocation, instance: Instance) -> Iterator[Any]:
        """Yield the placement of an allocation: that of a move's end, or the instance's."""
        for move in self._uow.migrations.where(instance_id=instance.id, state=tuple(UNFINISHED)):
            if allocation.consumer_id == move.id and move.source == allocation.provider:
                yield move.source_placement
            elif allocation.consumer_id == instance.id and move.target == allocation.provider:
                yield move.target_placement
        if instance.host == allocation.provider:
            yield instance.placement
