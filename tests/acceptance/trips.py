"""Every operation there is, as trips of instances: each leg is a request, and where it leads."""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conductor.hosts import host_administration
from conductor.store import OperationRecord
from models.lifecycle import InstanceState, OperationState
from tests.acceptance.fleet import Fleet
from tests.acceptance.sending import CONTEXT, PINNED, build_body, instance_of

BIGGER = {**PINNED, "vcpus": 4}
RACK = "rack"
END_S = 120.0
LOSES_ITS_HOST = "evacuate"


def _nothing(_: Fleet, __: str) -> None:
    """Most legs need nothing beside their request."""


@dataclass(frozen=True)
class Leg:
    """One request of a trip, without its instance; `to` says whether it may name a target."""

    task: str
    state: InstanceState
    arguments: Mapping[str, Any] = field(default_factory=dict)
    to: bool = False
    of_instance: bool = True
    before: Callable[[Fleet, str], None] = _nothing
    after: Callable[[Fleet, str], None] = _nothing


def lose_its_host(fleet: Fleet, instance_id: str) -> None:
    """Declare an instance's host dead, as whoever has fenced it does."""
    with fleet.store.begin() as uow:
        host_administration.force_down(uow, fleet.instance(instance_id).host or "", "fenced")


def find_hosts_again(fleet: Fleet, _: str) -> None:
    """Let every host back in that was declared dead."""
    with fleet.store.begin() as uow:
        for host in uow.hosts.where():
            if host.forced_down:
                host_administration.set_enabled(uow, host.name, enabled=True, reason=None)


BUILD = Leg("build_instances", InstanceState.ACTIVE)
DELETE = Leg("delete_instance", InstanceState.DELETED)
TRIPS: dict[str, list[Leg]] = {
    "stop and start": [
        Leg("stop_instance", InstanceState.STOPPED),
        Leg("start_instance", InstanceState.ACTIVE),
    ],
    "rebuild": [Leg("rebuild_instance", InstanceState.ACTIVE, {"image": {"id": "other"}})],
    "migrate and confirm": [
        Leg("migrate_instance", InstanceState.RESIZED, to=True),
        Leg("confirm_resize", InstanceState.ACTIVE),
    ],
    "resize and revert": [
        Leg("resize_instance", InstanceState.RESIZED, {"flavor": BIGGER}, to=True),
        Leg("revert_resize", InstanceState.ACTIVE),
    ],
    "live migrate": [Leg("live_migrate_instance", InstanceState.ACTIVE, to=True)],
    "shelve and unshelve": [
        Leg("shelve_instance", InstanceState.SHELVED_OFFLOADED, {"offload": True}),
        Leg("unshelve_instance", InstanceState.ACTIVE, to=True),
    ],
    "evacuate": [
        Leg(
            "evacuate_instance",
            InstanceState.ACTIVE,
            to=True,
            before=lose_its_host,
            after=find_hosts_again,
        )
    ],
    "cache images": [Leg("cache_images", InstanceState.ACTIVE, of_instance=False)],
}


EVERY_KIND = {leg.task for legs in TRIPS.values() for leg in [BUILD, *legs, DELETE]}


def define_rack(fleet: Fleet, hosts: Iterable[str]) -> None:
    """Define the aggregate of hosts on which images are cached, once in a fleet."""
    with fleet.store.read() as uow:
        known = uow.catalogue.get("aggregate", RACK)
    if known is None:
        fleet.define("aggregate", name=RACK, hosts=list(hosts))


class Traveller:
    """One instance on its trip, and what was asked for it so far.

    With a `home` it is built there; with a `target` it moves there whenever it moves.
    """

    def __init__(
        self, fleet: Fleet, legs: list[Leg], home: str | None = None, target: str | None = None
    ) -> None:
        self.legs = [BUILD, *legs, DELETE]
        self.ids = [str(uuid.uuid4()) for _ in self.legs]
        self.instance_id = instance_of(self.ids[0])
        self._fleet = fleet
        self._home = home
        self._target = target
        self._images = [str(uuid.uuid4()) for leg in legs if leg.task == "cache_images"]

    def prepare(self, number: int) -> None:
        """Make the fleet ready for a leg."""
        if self.legs[number].task == "cache_images":
            for image in self._images:
                self._fleet.define("image", id=image)
        self.legs[number].before(self._fleet, self.instance_id)

    def ask(self, number: int) -> None:
        """Send the request of a leg; twice is one operation."""
        leg = self.legs[number]
        if leg.task == "build_instances":
            named = {"host": self._home} if self._home else {}
            body: dict[str, Any] = build_body(**named)
        elif leg.of_instance:
            to = {"host": self._target} if leg.to and self._target else {}
            body = {"instance_id": self.instance_id, **leg.arguments, **to}
        else:
            body = {"aggregate": RACK, "images": self._images}
        self._fleet.sender.send(leg.task, {"context": CONTEXT, **body}, self.ids[number])

    def check(self, number: int, record: OperationRecord) -> None:
        """The leg has succeeded, and led where it should."""
        leg = self.legs[number]
        assert record.state is OperationState.SUCCEEDED, (leg.task, record.error)
        assert self._fleet.instance(self.instance_id).state is leg.state, leg.task
        leg.after(self._fleet, self.instance_id)

    def go(self, number: int) -> None:
        """Take one leg, undisturbed."""
        self.prepare(number)
        self.ask(number)
        self.check(number, self._fleet.ended(self.ids[number]))

    def effects(self) -> Counter[str]:
        """Return how often each verb has changed something, as the hypervisors say."""
        with self._fleet.store.read() as uow:
            caching = {
                child.id
                for id_ in self.ids
                for child in uow.operations.where(parent_id=id_, kind="cache_images_on_host")
            }
        return self._fleet.all_effects({self.instance_id, *caching})


def travellers_of(
    fleet: Fleet, homes: Sequence[str], lost: str, trips: Mapping[str, list[Leg]] = TRIPS
) -> list[Traveller]:
    """Return one traveller a trip, between hosts of `homes`; `lost` is for who loses its host."""
    towards = itertools.cycle(zip(homes, [*homes[1:], homes[0]], strict=True))
    travellers = []
    for trip, legs in trips.items():
        home, target = next(towards)
        travellers.append(
            Traveller(fleet, legs, lost if trip.startswith(LOSES_ITS_HOST) else home, target)
        )
    return travellers


def go_together(
    fleet: Fleet,
    travellers: list[Traveller],
    number: int,
    strike: Callable[[Mapping[str, str]], None] | None = None,
) -> None:
    """Take everybody through one leg, side by side; `strike` gets the kinds of operations by id."""
    for traveller in travellers:
        traveller.prepare(number)
    for traveller in travellers:
        traveller.ask(number)
    if strike is not None:
        strike({traveller.ids[number]: traveller.legs[number].task for traveller in travellers})
    for traveller in travellers:
        traveller.check(number, fleet.ended(traveller.ids[number], END_S))
