"""A guest that no instance has is removed where an operator says so, and nowhere else."""

from __future__ import annotations

import pytest

from models.lifecycle import OperationState
from tests.operations.test_unexpected_guests import put_guest, restart_all
from tests.operations.world import SHARED, World

ORPHAN = "9f1c2d3e-0000-4000-8000-000000000009"


def with_orphan() -> World:
    world = World(hosts=2)
    put_guest(world, "host-0", ORPHAN)
    restart_all(world)
    return world


def removed(world: World, guest_id: str = ORPHAN, host: str = "host-0") -> str:
    operation = world.submit("destroy_orphan", {"host": host, "guest_id": guest_id})
    world.run_out()
    return operation


def listed(world: World, host: str = "host-0") -> list[str]:
    with world.store.read() as uow:
        registration = uow.registrations.get(host)
    assert registration is not None
    return [str(row["name"]) for row in registration.unexpected]


def test_an_orphan_is_left_alone_until_it_is_asked_to_be_removed() -> None:
    world = with_orphan()
    assert listed(world) == [ORPHAN]
    assert ORPHAN in world.guests()
    operation = removed(world)
    assert world.ended(operation) is OperationState.SUCCEEDED
    assert ORPHAN not in world.guests()
    assert listed(world) == []
    restart_all(world)
    assert listed(world) == []


def test_the_guest_of_an_instance_is_no_orphan() -> None:
    world = with_orphan()
    build = world.build(SHARED, host="host-0")
    world.run_out()
    guest = world.instance(build).id
    error = world.operation(removed(world, guest)).error or {}
    assert (error["code"], error["key"]) == ("orphan_unknown", "guest_id")
    assert guest in world.guests()


def test_an_orphan_is_removed_from_the_host_that_is_named_only() -> None:
    world = with_orphan()
    put_guest(world, "host-1", ORPHAN)
    restart_all(world)
    assert world.ended(removed(world, host="host-1")) is OperationState.SUCCEEDED
    assert world.guest_pairs() == {(ORPHAN, "host-0")}


@pytest.mark.parametrize(
    ("host", "guest", "key"),
    [("nowhere", ORPHAN, "host"), ("host-1", ORPHAN, "guest_id"), ("host-0", "vm", "guest_id")],
)
def test_what_is_not_listed_there_is_refused_by_name(host: str, guest: str, key: str) -> None:
    world = with_orphan()
    operation = removed(world, guest, host)
    error = world.operation(operation).error or {}
    assert error["key"] == key
    assert ORPHAN in world.guests()


def test_what_has_become_an_instance_s_again_is_not_removed() -> None:
    world = with_orphan()
    build = world.build(SHARED, host="host-1")
    world.run_out()
    guest = world.instance(build).id
    put_guest(world, "host-0", guest)
    restart_all(world)
    assert guest in listed(world)
    operation = world.submit("destroy_orphan", {"host": "host-0", "guest_id": guest})
    world.deliver("conductor")
    world.run_out()
    assert world.ended(operation) is OperationState.SUCCEEDED
    assert world.guests()[guest] == "host-1"
    assert world.instance(build).host == "host-1"
