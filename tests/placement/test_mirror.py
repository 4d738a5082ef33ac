"""A Placement server beside our own tables: asked before a claim counts, told of all the rest."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from conductor.hosts.host_administration import remove
from conductor.placement.ports import PlacementService
from conductor.placement.providers import Consumer, provider_id_of
from conductor.placement.sync.mirror import PlacementMirror
from conductor.processes.embedded.bus_desk import Desk
from conductor.scheduling.scheduling_service import Scheduler
from conductor.scheduling.settings import SchedulingSettings
from conductor.store import Inventory
from conductor.store.memory.memory_store import MemoryStore
from models.errors import Broken, Rejected, Unreachable
from models.lifecycle import OperationState
from tests.contracts.placement.conftest import PerCall
from tests.operations.test_moves import ask, built, error_code
from tests.operations.world import PINNED, SHARED, Killed, World

STRANGER = str(uuid.UUID(int=1))


class Server:
    """A placement service that can be away; it counts what is asked of it."""

    def __init__(self, service: Any) -> None:
        self._service = service
        self.away = False
        self.writes = 0
        self.requests: list[str] = []

    def on_behalf_of(self, request_id: str) -> Any:
        self.requests.append(request_id)
        return self

    def __getattr__(self, name: str) -> Any:
        if self.away:
            raise Unreachable("placement_unreachable", "the server is away")
        self.writes += name == "write"
        return getattr(self._service, name)


class Refusing(Server):
    """A placement service that will not have a host's provider, or anything of ours, for good."""

    def __init__(self, service: Any, error: Exception, host: str | None) -> None:
        super().__init__(service)
        self.error = error
        self.host = host
        self.refuses = False

    def ensure_provider(self, provider_id: str, name: str, parent_id: str | None = None) -> Any:
        if self.refuses and name == self.host:
            raise self.error
        return self._service.ensure_provider(provider_id, name, parent_id)

    def set_inventories(self, provider_id: str, *values: Any) -> Any:
        if self.refuses and self.host and provider_id == provider_id_of(self.host):
            raise self.error
        return self._service.set_inventories(provider_id, *values)

    def providers(self, query: Any) -> Any:
        if self.refuses and self.host is None:
            raise self.error
        return self._service.providers(query)


class Partnered(World):
    """The system with a Placement server of its own."""

    def __init__(self, server: Any, hosts: int = 2) -> None:
        self.server = server
        self.mirror: PlacementMirror | None = None
        super().__init__(hosts)
        self.follow()

    def restart_conductor(self) -> None:
        super().restart_conductor()
        self.mirror = PlacementMirror(self.store, self.server)
        settings = SchedulingSettings(refresh_s=0.0)
        scheduler = Scheduler(self.store, settings, mirror=self.mirror)
        self.desk = Desk(self.service, scheduler)

    def follow(self) -> None:
        assert self.mirror is not None
        assert self.mirror.follow() == 0

    def differences(self) -> list[object]:
        assert self.mirror is not None
        return list(self.mirror.differences())

    def there(self, host: str) -> Mapping[str, Mapping[str, int]]:
        """Return who holds what of a host at the server."""
        held = self.server.consumers_of(provider_id_of(host))
        return {who: dict(resources) for who, resources in held.items()}


@pytest.fixture
def world() -> Partnered:
    return Partnered(Server(PerCall(MemoryStore())))


def claim_there(server: PlacementService, host: str, **amounts: int) -> None:
    """Let another service hold something of a host."""
    held = {provider_id_of(host): amounts}
    before = server.consumer(STRANGER)
    server.write([replace(before, allocations=held, kind="backup", project_id="other")])


def test_hosts_and_claims_are_there_too_and_what_is_given_back_is_gone(world: Partnered) -> None:
    instance = built(world, PINNED, host="host-0")
    root = world.server.provider(provider_id_of("host-0"))
    assert root.inventories["PCPU"].total == 4
    assert world.server.requests == ["req-1"]
    assert world.there("host-0") == {instance: {"PCPU": 2, "MEMORY_MB": 1024}}
    assert world.differences() == []
    ask(world, "delete_instance", instance)
    world.follow()
    assert world.there("host-0") == {}


def test_nothing_that_is_as_it_should_be_is_written_again(world: Partnered) -> None:
    built(world, PINNED)
    world.follow()
    writes = world.server.writes
    world.follow()
    world.restart_conductor()
    world.follow()
    assert world.server.writes == writes


def test_what_others_hold_there_is_room_that_is_not_there(world: Partnered) -> None:
    claim_there(world.server, "host-0", PCPU=3)
    instances = {built(world, PINNED) for _ in range(2)}
    assert {world.instance_by_id(instance).host for instance in instances} == {"host-1"}
    assert set(world.there("host-1")) == instances
    full = world.build(PINNED)
    world.run_out()
    assert error_code(world, full) == "no_valid_host"
    message = str((world.operation(full).error or {})["message"])
    assert "the Placement server refused" in message
    assert world.host("host-0").used == {}
    assert world.differences() == []


def test_of_several_instances_all_or_none_are_claimed(world: Partnered) -> None:
    claim_there(world.server, "host-0", PCPU=3)
    too_many = world.build(PINNED, count=3)
    world.run_out()
    assert error_code(world, too_many) == "no_valid_host"
    assert {name: dict(world.host(name).used) for name in world.hosts} == {
        "host-0": {},
        "host-1": {},
    }
    assert world.there("host-1") == {}


def test_a_move_holds_both_sides_there_as_here(world: Partnered) -> None:
    instance = built(world, PINNED, host="host-0")
    ask(world, "migrate_instance", instance)
    (migration,) = world.there("host-0")
    assert migration != instance
    assert set(world.there("host-1")) == {instance}
    ask(world, "revert_resize", instance)
    world.follow()
    assert set(world.there("host-0")) == {instance}
    assert world.there("host-1") == {}
    ask(world, "migrate_instance", instance)
    ask(world, "confirm_resize", instance)
    world.follow()
    assert world.there("host-0") == {}
    assert set(world.there("host-1")) == {instance}
    assert world.differences() == []


@pytest.mark.parametrize("target", ["host-1", None])
def test_a_move_that_is_followed_step_by_step_leaves_nothing_of_it_there(
    world: Partnered, target: str | None
) -> None:
    instance = built(world, PINNED, host="host-0")
    world.follow()
    if target is None:
        claim_there(world.server, "host-1", PCPU=4)
        ask(world, "live_migrate_instance", instance)
    else:
        ask(world, "migrate_instance", instance)
        world.follow()
        ask(world, "revert_resize", instance)
    world.follow()
    assert set(world.there("host-0")) == {instance}
    assert world.differences() == []


def test_a_server_that_is_away_delays_a_claim_and_loses_none(world: Partnered) -> None:
    world.server.away = True
    operation = world.build(SHARED)
    world.deliver("conductor")
    outgoing = world.bus.take("scheduler")
    while outgoing is None:
        world.deliver(world.waiting_queues()[0])
        outgoing = world.bus.take("scheduler")
    with pytest.raises(Unreachable):
        world.hand_over(outgoing)
    world.server.away = False
    world.hand_over(outgoing)
    world.run_out()
    assert world.ended(operation) is OperationState.SUCCEEDED
    assert len(world.there("host-0")) + len(world.there("host-1")) == 1


@pytest.mark.parametrize("commits", range(1, 4))
def test_a_scheduler_that_dies_between_claim_and_answer_leaves_one_claim(
    world: Partnered, commits: int
) -> None:
    operation = world.build(SHARED)
    while (outgoing := world.bus.take("scheduler")) is None:
        world.deliver(world.waiting_queues()[0])
    world.store.commits_left = commits
    try:
        world.hand_over(outgoing)
    except Killed:
        world.restart_conductor()
        world.hand_over(outgoing)
    world.store.commits_left = -1
    world.run_out()
    assert world.ended(operation) is OperationState.SUCCEEDED
    assert len(world.there("host-0")) + len(world.there("host-1")) == 1
    assert world.differences() == []


def test_what_others_have_hung_under_our_hosts_stays(world: Partnered) -> None:
    root = provider_id_of("host-0")
    child = str(uuid.uuid4())
    world.server.ensure_provider(child, "host-0-nic", root)
    world.server.ensure_classes(["CUSTOM_NIC"])
    world.server.set_inventories(child, {"CUSTOM_NIC": Inventory(2)}, 0)
    world.server.write([Consumer(STRANGER, {child: {"CUSTOM_NIC": 1}})])
    built(world, SHARED, host="host-0")
    world.follow()
    assert world.server.consumers_of(child) == {STRANGER: {"CUSTOM_NIC": 1}}


def test_a_host_that_is_removed_is_removed_there(world: Partnered) -> None:
    with world.store.begin() as uow:
        remove(uow, "host-1")
    world.follow()
    assert world.server.provider(provider_id_of("host-1")) is None
    assert world.server.provider(provider_id_of("host-0")) is not None


def test_what_was_changed_behind_our_back_is_a_difference(world: Partnered) -> None:
    instance = built(world, SHARED, host="host-0")
    held = world.server.consumer(instance)
    world.server.write([replace(held, allocations={})])
    (difference,) = world.differences()
    assert (difference.provider, difference.consumer_id) == ("host-0", instance)


def test_a_claim_that_comes_while_changes_are_followed_is_not_written_over(
    world: Partnered,
) -> None:
    instance = built(world, SHARED, host="host-0")
    held = world.server.consumer(instance)
    world.server.write([replace(held, allocations={})])
    follower = PlacementMirror(world.store, Overtaken(world.server, lambda: built(world, PINNED)))
    follower.follow()
    assert world.differences() == []
    assert len(world.there("host-0")) + len(world.there("host-1")) == 2


class Overtaken:
    """A placement service where somebody builds just when a consumer's holdings were read."""

    def __init__(self, server: Server, meanwhile: Callable[[], object]) -> None:
        self._server = server
        self._meanwhile = [meanwhile]

    def on_behalf_of(self, _: str) -> Any:
        return self

    def consumer(self, consumer_id: str) -> Any:
        held = self._server.consumer(consumer_id)
        if self._meanwhile:
            self._meanwhile.pop()()
        return held

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)


REFUSALS = [
    Rejected("provider_name_taken", "the name is another's"),
    Rejected("trait_unknown", "no such trait"),
    Rejected("resource_class_unknown", "no such class"),
    Rejected("inventory_in_use", "it is in use"),
    Broken("placement_answer_unexpected", "Placement answers 400"),
]


@pytest.mark.parametrize("error", REFUSALS, ids=lambda item: item.code)
def test_a_host_that_the_server_refuses_for_good_is_left_for_another_at_once(
    error: Exception,
) -> None:
    server = Refusing(PerCall(MemoryStore()), error, "host-0")
    world = Partnered(server)
    # The host is new at the server, so that everything of it has to be written.
    server.delete_provider(provider_id_of("host-0"))
    server.refuses = True
    began = world.now
    builds = [world.build(SHARED) for _ in range(3)]
    world.settle()
    assert [world.ended(build) for build in builds] == [OperationState.SUCCEEDED] * 3
    assert {world.instance(build).host for build in builds} == {"host-1"}
    assert world.now == began
    with world.store.read() as uow:
        assert uow.allocations.where(provider="host-0") == []


def test_only_the_host_that_is_refused_is_left_out() -> None:
    server = Refusing(PerCall(MemoryStore()), REFUSALS[0], "host-0")
    world = Partnered(server, hosts=3)
    server.delete_provider(provider_id_of("host-0"))
    server.refuses = True
    build = world.build(PINNED, count=4)
    world.settle()
    assert world.ended(build) is OperationState.SUCCEEDED
    with world.store.read() as uow:
        assert {instance.host for instance in uow.instances.where()} == {"host-1", "host-2"}


def test_a_server_that_refuses_us_ends_a_build_at_once_with_its_reason() -> None:
    error = Rejected("placement_credentials", "it refuses our credentials")
    server = Refusing(PerCall(MemoryStore()), error, None)
    world = Partnered(server, hosts=3)
    server.refuses = True
    build = world.build(SHARED)
    world.settle()
    assert world.ended(build) is OperationState.FAILED
    assert "it refuses our credentials" in str(world.operation(build).error)
    with world.store.read() as uow:
        assert uow.allocations.where() == []
