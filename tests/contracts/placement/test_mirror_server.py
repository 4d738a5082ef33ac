"""The whole system beside a real Placement server: built, moved, refused, given back."""

from __future__ import annotations

from conductor.placement.http.http_placement import HttpPlacement
from models.lifecycle import OperationState
from tests.operations.test_moves import ask, built, error_code
from tests.operations.world import PINNED
from tests.placement.test_mirror import Partnered, claim_there


def test_an_instance_is_built_moved_and_deleted_with_the_server(
    http_placement: HttpPlacement,
) -> None:
    world = Partnered(http_placement)
    instance = built(world, PINNED, host="host-0")
    assert set(world.there("host-0")) == {instance}
    moved = ask(world, "migrate_instance", instance)
    assert world.ended(moved) is OperationState.SUCCEEDED
    assert set(world.there("host-1")) == {instance}
    assert len(world.there("host-0")) == 1
    assert world.differences() == []
    ask(world, "revert_resize", instance)
    world.follow()
    assert set(world.there("host-0")) == {instance}
    assert world.there("host-1") == {}
    ask(world, "delete_instance", instance)
    world.follow()
    assert world.there("host-0") == {}
    assert world.differences() == []


def test_what_others_hold_at_the_server_is_no_room(http_placement: HttpPlacement) -> None:
    world = Partnered(http_placement)
    claim_there(http_placement, "host-0", PCPU=3)
    assert world.instance_by_id(built(world, PINNED)).host == "host-1"
    assert world.instance_by_id(built(world, PINNED)).host == "host-1"
    refused = world.build(PINNED)
    world.run_out()
    assert error_code(world, refused) == "no_valid_host"
    assert world.host("host-0").used == {}
