"""What the commands about scheduling look at: the fleet as the scheduler sees it, and who is on it.

Everything is read in one transaction; what is tried on the fleet stays in this process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from conductor.cli.store_queries import chunks
from conductor.operations.steps.build_request import NO_IMAGE, flavor_of, image_of
from conductor.placement.local.host_claims import HostAllocation, without_allocation
from conductor.placement.providers import Resources
from conductor.processes.embedded import scheduling_settings
from conductor.scheduling.analysis.what_if import Guest
from conductor.scheduling.fleet.fleet_snapshot import Fleet
from conductor.scheduling.fleet_cache import FleetCache
from conductor.scheduling.request.request_spec import RequestSpec
from conductor.scheduling.request.select_hosts import RequestSpecs, with_move_targets
from conductor.scheduling.request.shared_providers import ProviderAmounts
from conductor.scheduling.settings import SchedulingSettings
from conductor.settings import Settings
from conductor.store import Allocation, Instance, UnitOfWork
from models.errors import Rejected
from models.hardware import FrozenMap, Image
from models.lifecycle import UNFINISHED, InstanceState
from models.messages.internal import HostRequest, SelectHosts, Token

_NOBODY = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked about: a flavor by name, perhaps an image, and wishes about hosts."""

    flavor: str
    image: str | None = None
    project: str = ""
    zone: str | None = None
    host: str | None = None
    group: str | None = None


class FleetInspection:
    """The fleet and who is on it, within one reading transaction."""

    def __init__(self, uow: UnitOfWork, settings: Settings) -> None:
        self._uow = uow
        # Without chance: asked twice, the answer is the same.
        self.settings: SchedulingSettings = replace(scheduling_settings(settings), seed=None)
        view = FleetCache(self.settings)
        view.refresh(uow)
        self.fleet: Fleet = view.fleet
        self.now = uow.now

    def request_spec_of(self, wish: Wish) -> RequestSpec:
        """Return what a new instance would ask; raise `Rejected` for an unknown name."""
        flavor = flavor_of(wish.flavor, self._uow, "flavor")
        image = NO_IMAGE
        if wish.image is not None:
            body = image_of(wish.image, self._uow, "image")
            image = Image(body.id, body.name or "", body.properties)
        for kind, name in (("zone", wish.zone), ("server_group", wish.group)):
            if name is not None and self._uow.catalogue.get(kind, name) is None:
                what = kind.replace("_", " ")
                raise Rejected(f"{kind}_unknown", f"{what} is {name}: no such {what}", key=kind)
        if wish.host is not None and self.fleet.get(wish.host) is None:
            raise Rejected("host_unknown", f"host is {wish.host}: no such host", key="host")
        spec = {"availability_zone": wish.zone, "host": wish.host}
        instance = Instance(
            id=_NOBODY,
            name="what-if",
            project_id=wish.project,
            user_id="",
            state=InstanceState.BUILDING,
            flavor=flavor,
            image=image,
            request_spec={key: value for key, value in spec.items() if value is not None},
            group=wish.group,
            created_at=self.now,
            updated_at=self.now,
        )
        return self._demand(instance)

    def request_spec_again(self, instance: Instance, operation_id: str) -> RequestSpec:
        """Return what an operation asked for an instance, as of now, with its own use given back.

        What its instance holds today, and what a move of it holds, is taken off the fleet.
        """
        moves = self._uow.migrations.where(instance_id=instance.id, operation_id=operation_id)
        for consumer in (instance.id, *(move.id for move in moves)):
            for held in self._uow.allocations.where(consumer_id=consumer):
                self._give_back(held, instance)
        message = _message(instance.id, operation_id, moves[-1].id if moves else None)
        requesting = with_move_targets(self._uow, message, {instance.id: instance})[instance.id]
        # Its allocations from providers other than hosts have been released above.
        return replace(self._demand(requesting, message), allocated=FrozenMap({}))

    def guests_of(self, hosts: Iterable[str]) -> Mapping[str, Sequence[Guest]]:
        """Return who is on these hosts, but for what a move holds of its source."""
        names = sorted(set(hosts))
        guests: dict[str, list[Guest]] = defaultdict(list)
        for some in chunks(names):
            held = {
                (item.consumer_id, item.provider): item
                for item in self._uow.allocations.where(provider=some, consumer_kind="instance")
            }
            for instance in self._uow.instances.where(host=some):
                allocation = held.get((instance.id, instance.host or ""))
                if allocation is not None:
                    guests[allocation.provider].append(self._guest(instance, allocation))
        return guests

    def movable_on(self, host: str) -> Sequence[Guest]:
        """Return who on a host could be moved now: at rest, and not on the move."""
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

    def _guest(self, instance: Instance, held: Allocation) -> Guest:
        holding = HostAllocation(instance.id, held.project_id, instance.placement, held.amounts)
        beside = self._beside.get(instance.id, FrozenMap({}))
        return Guest(instance.id, instance.name, holding, self._demand(instance), beside)

    @cached_property
    def _beside(self) -> Mapping[str, ProviderAmounts]:
        """What instances hold of providers that are no hosts, by instance."""
        held: dict[str, dict[str, Resources]] = defaultdict(dict)
        names = self.fleet.providers.names
        for some in chunks(sorted(names)):
            for allocation in self._uow.allocations.where(provider=some, consumer_kind="instance"):
                held[allocation.consumer_id][names[allocation.provider]] = allocation.amounts
        return held

    def _demand(self, instance: Instance, message: SelectHosts | None = None) -> RequestSpec:
        asking = message or _message(instance.id, _NOBODY, None)
        return RequestSpecs(self._uow, asking).of(replace(instance, host=None, placement=None))

    def _give_back(self, held: Allocation, instance: Instance) -> None:
        host = self.fleet.get(held.provider)
        if host is None:
            for provider in self._uow.providers.where(name=held.provider):
                given = {provider.id: held.amounts}
                self.fleet.providers = self.fleet.providers.release(given)
            return
        placement = next(iter(self._placements(held, instance)), None)
        holding = HostAllocation(held.consumer_id, held.project_id, placement, held.amounts)
        self.fleet.put(without_allocation(host, holding, self.now))

    def _placements(self, held: Allocation, instance: Instance) -> Iterator[Any]:
        """Yield the placement that goes with an allocation: of a move's end, or the instance's."""
        for move in self._uow.migrations.where(instance_id=instance.id, state=tuple(UNFINISHED)):
            if held.consumer_id == move.id and move.source == held.provider:
                yield move.source_placement
            elif held.consumer_id == instance.id and move.target == held.provider:
                yield move.target_placement
        if instance.host == held.provider:
            yield instance.placement


def _message(instance_id: str, operation_id: str, migration_id: str | None) -> SelectHosts:
    token = Token(operation_id=operation_id, step="look", attempt=1, sequence=0)
    host_request = HostRequest(
        instance_id=instance_id, operation_id=operation_id, migration_id=migration_id
    )
    return SelectHosts(token=token, host_requests=(host_request,))
