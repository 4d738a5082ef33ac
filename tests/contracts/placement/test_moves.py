"""Moves: the migration holds the source, the instance the target; what is shared counts once."""

import pytest

from conductor.placement.allocations import begin_move, confirm_move, plan_move, revert_move
from conductor.placement.ports import PlacementService
from conductor.placement.providers import INSTANCE, MIGRATION
from conductor.placement.request_groups import Candidate
from models.errors import NoValidHost
from tests.contracts.placement.world import (
    PROJECT,
    ROOM,
    USER,
    held,
    holder,
    make,
    new_id,
    shared_storage,
    used,
)

SMALL = {"VCPU": 2, "MEMORY_MB": 512}
LARGE = {"VCPU": 4, "MEMORY_MB": 1024}


def on(root_id: str, allocations: dict[str, dict[str, int]]) -> Candidate:
    return Candidate(allocations, {"": tuple(allocations)}, root_id)


def test_a_move_holds_both_sides_until_it_is_confirmed(placement: PlacementService) -> None:
    source, target = make(placement, "source", ROOM), make(placement, "target", ROOM)
    instance, migration_id = held(placement, source, SMALL), new_id()
    move = plan_move(placement, instance.id, migration_id, on(target.id, {target.id: LARGE}))
    for _ in range(2):
        begin_move(placement, move)
        assert (used(placement, source), used(placement, target)) == (SMALL, LARGE)
        keeper, taker = placement.consumer(migration_id), placement.consumer(instance.id)
        assert (keeper.allocations, taker.allocations) == ({source.id: SMALL}, {target.id: LARGE})
        assert (keeper.kind, taker.kind) == (MIGRATION, INSTANCE)
        assert (keeper.project_id, keeper.user_id) == (PROJECT, USER)
    for _ in range(2):
        confirm_move(placement, move)
        assert (used(placement, source), used(placement, target)) == ({}, LARGE)


def test_a_reverted_move_leaves_what_was_held_before(placement: PlacementService) -> None:
    source, target = make(placement, "source", ROOM), make(placement, "target", ROOM)
    instance, migration_id = held(placement, source, SMALL), new_id()
    move = plan_move(placement, instance.id, migration_id, on(target.id, {target.id: LARGE}))
    begin_move(placement, move)
    for _ in range(2):
        revert_move(placement, move)
        assert (used(placement, source), used(placement, target)) == (SMALL, {})
        assert placement.consumer(migration_id).allocations == {}


def test_a_move_never_begun_may_be_reverted(placement: PlacementService) -> None:
    source, target = make(placement, "source", ROOM), make(placement, "target", ROOM)
    instance = held(placement, source, SMALL)
    move = plan_move(placement, instance.id, new_id(), on(target.id, {target.id: LARGE}))
    revert_move(placement, move)
    assert placement.consumer(instance.id) == instance


def test_a_move_to_a_target_without_room_holds_the_source_as_before(
    placement: PlacementService,
) -> None:
    source, target = make(placement, "source", ROOM), make(placement, "target", ROOM)
    instance = held(placement, source, SMALL)
    held(placement, target, {"VCPU": 6})
    move = plan_move(placement, instance.id, new_id(), on(target.id, {target.id: LARGE}))
    with pytest.raises(NoValidHost) as refused:
        begin_move(placement, move)
    assert refused.value.data["provider"] == target.id
    assert placement.consumer(instance.id) == instance
    assert used(placement, target) == {"VCPU": 6}


def test_confirming_on_the_same_host_takes_off_what_was_held_before(
    placement: PlacementService,
) -> None:
    host = make(placement, "host-1", ROOM)
    instance = held(placement, host, SMALL)
    move = plan_move(placement, instance.id, new_id(), on(host.id, {host.id: LARGE}))
    begin_move(placement, move)
    assert used(placement, host) == {"VCPU": 6, "MEMORY_MB": 1536}
    confirm_move(placement, move)
    assert used(placement, host) == LARGE


@pytest.mark.parametrize(("before_gb", "after_gb"), [(10, 10), (10, 30), (30, 10)])
def test_a_move_charges_a_shared_provider_once_with_the_larger_of_both(
    placement: PlacementService, before_gb: int, after_gb: int
) -> None:
    aggregate = new_id()
    source = make(placement, "source", ROOM, aggregates=[aggregate])
    target = make(placement, "target", ROOM, aggregates=[aggregate])
    storage = shared_storage(placement, aggregate, disk_gb=30)
    instance = holder({source.id: SMALL, storage.id: {"DISK_GB": before_gb}})
    placement.write([instance])
    chosen = on(target.id, {target.id: LARGE, storage.id: {"DISK_GB": after_gb}})
    move = plan_move(placement, instance.id, new_id(), chosen)
    begin_move(placement, move)
    assert used(placement, storage) == {"DISK_GB": max(before_gb, after_gb)}
    assert (used(placement, source), used(placement, target)) == (SMALL, LARGE)
    revert_move(placement, move)
    assert placement.consumer(instance.id).allocations == instance.allocations
    assert used(placement, storage) == {"DISK_GB": before_gb}
    begin_move(placement, move)
    confirm_move(placement, move)
    assert placement.consumer(instance.id).allocations == chosen.allocations
    assert used(placement, storage) == {"DISK_GB": after_gb}
