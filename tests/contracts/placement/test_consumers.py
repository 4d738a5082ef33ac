"""What consumers hold: all or none, under their generations, never more than there is."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from conductor.placement.allocations import allocate, heal, release
from conductor.placement.ports import PlacementService
from conductor.placement.providers import Consumer
from conductor.placement.request_groups import Candidate
from conductor.store import Inventory
from models.errors import Conflict, NoValidHost, Rejected
from tests.contracts.placement.world import (
    PROJECT,
    ROOM,
    USER,
    asking,
    emptied,
    held,
    holder,
    make,
    new_id,
    used,
)


def test_a_consumer_that_holds_nothing_has_no_generation(placement: PlacementService) -> None:
    stranger = new_id()
    assert placement.consumer(stranger) == Consumer(stranger)


def test_what_is_written_is_held_and_in_use(placement: PlacementService) -> None:
    made = make(placement, "host-1", ROOM)
    wanted = holder({made.id: {"VCPU": 2, "MEMORY_MB": 512}}, kind="migration")
    placement.write([wanted])
    found = placement.consumer(wanted.id)
    assert found.generation is not None
    assert replace(found, generation=None) == wanted
    assert used(placement, made) == {"VCPU": 2, "MEMORY_MB": 512}
    assert placement.consumers_of(made.id) == {wanted.id: {"VCPU": 2, "MEMORY_MB": 512}}


def test_zero_amounts_are_left_out(placement: PlacementService) -> None:
    made = make(placement, "host-1", ROOM)
    consumer = held(placement, made, {"VCPU": 2, "MEMORY_MB": 0})
    assert consumer.allocations == {made.id: {"VCPU": 2}}
    placement.write([replace(consumer, allocations={made.id: {"VCPU": 0}})])
    assert placement.consumer(consumer.id) == Consumer(consumer.id)


def test_a_consumer_may_be_nobodys(placement: PlacementService) -> None:
    made = make(placement, "host-1", ROOM)
    consumer = Consumer(new_id(), {made.id: {"VCPU": 1}})
    placement.write([consumer])
    found = placement.consumer(consumer.id)
    assert (found.project_id, found.user_id) == ("", "")
    assert placement.usages("") == {"VCPU": 1}


def test_a_write_replaces_all_that_was_held(placement: PlacementService) -> None:
    one, other = make(placement, "host-1", ROOM), make(placement, "host-2", ROOM)
    consumer = held(placement, one, {"VCPU": 2})
    placement.write([replace(consumer, allocations={other.id: {"MEMORY_MB": 64}})])
    assert (used(placement, one), used(placement, other)) == ({}, {"MEMORY_MB": 64})


def test_a_consumer_under_an_old_generation_overwrites_nobody(
    placement: PlacementService,
) -> None:
    made = make(placement, "host-1", ROOM)
    consumer = held(placement, made, {"VCPU": 1})
    placement.write([replace(consumer, allocations={made.id: {"VCPU": 2}})])
    for old in (consumer, replace(consumer, generation=None)):
        with pytest.raises(Conflict) as moved:
            placement.write([replace(old, allocations={made.id: {"VCPU": 3}})])
        assert moved.value.code == "generation_conflict"
    assert used(placement, made) == {"VCPU": 2}


def test_emptying_a_consumer_carries_its_generation(placement: PlacementService) -> None:
    made = make(placement, "host-1", ROOM)
    consumer = held(placement, made, {"VCPU": 1})
    with pytest.raises(Conflict):
        placement.write([emptied(replace(consumer, generation=None))])
    placement.write([emptied(consumer)])
    with pytest.raises(Conflict):
        placement.write([emptied(consumer)])
    placement.write([emptied(replace(consumer, generation=None))])
    assert used(placement, made) == {}


def test_nothing_is_held_beyond_what_there_is(placement: PlacementService) -> None:
    made = make(placement, "host-1", {"VCPU": Inventory(8, 2, 1.5)})
    held(placement, made, {"VCPU": 5})
    with pytest.raises(NoValidHost) as refused:
        placement.write([holder({made.id: {"VCPU": 5}})])
    assert refused.value.code == "no_capacity"
    assert refused.value.data == {
        "provider": made.id,
        "resource_class": "VCPU",
        "need": 5,
        "have": 4,
    }
    held(placement, made, {"VCPU": 4})


def test_what_a_consumer_held_itself_counts_as_free_for_it(placement: PlacementService) -> None:
    made = make(placement, "host-1", ROOM)
    consumer = held(placement, made, {"VCPU": 6})
    placement.write([replace(consumer, allocations={made.id: {"VCPU": 8}})])
    assert used(placement, made) == {"VCPU": 8}


def test_a_class_that_the_provider_has_not_has_no_capacity(placement: PlacementService) -> None:
    made = make(placement, "host-1", ROOM)
    with pytest.raises(NoValidHost) as refused:
        placement.write([holder({made.id: {"VCPU": 1, "DISK_GB": 3}})])
    assert refused.value.data["resource_class"] == "DISK_GB"
    assert (refused.value.data["need"], refused.value.data["have"]) == (3, 0)
    assert used(placement, made) == {}


@pytest.mark.parametrize(("amount", "code"), [(1, "allocation_invalid"), (3, "allocation_invalid")])
def test_an_amount_against_the_units_of_an_inventory_is_refused(
    placement: PlacementService, amount: int, code: str
) -> None:
    made = make(placement, "host-1", {"VCPU": Inventory(16, 0, 1.0, 2, 8, 2)})
    with pytest.raises(Rejected) as refused:
        placement.write([holder({made.id: {"VCPU": amount}})])
    assert refused.value.code == code


def test_one_claim_takes_no_more_than_the_largest_unit(placement: PlacementService) -> None:
    made = make(placement, "host-1", {"VCPU": Inventory(16, max_unit=4)})
    with pytest.raises(NoValidHost) as refused:
        placement.write([holder({made.id: {"VCPU": 5}})])
    assert (refused.value.data["need"], refused.value.data["have"]) == (5, 4)


def test_a_negative_amount_is_refused(placement: PlacementService) -> None:
    made = make(placement, "host-1", ROOM)
    with pytest.raises(Rejected) as refused:
        placement.write([holder({made.id: {"VCPU": -1}})])
    assert refused.value.code == "allocation_invalid"


def test_an_allocation_of_nobody_or_of_an_unknown_class_is_refused(
    placement: PlacementService,
) -> None:
    made = make(placement, "host-1", ROOM)
    with pytest.raises(Rejected) as refused:
        placement.write([holder({new_id(): {"VCPU": 1}})])
    assert refused.value.code == "provider_unknown"
    with pytest.raises(Rejected) as refused:
        placement.write([holder({made.id: {"CUSTOM_NOBODY_MADE_ME": 1}})])
    assert refused.value.code == "resource_class_unknown"


def test_a_claim_on_a_provider_that_is_gone_does_not_spoil_the_consumer(
    placement: PlacementService,
) -> None:
    made = make(placement, "host-1", ROOM)
    wanted = holder({new_id(): {"VCPU": 1}})
    with pytest.raises(Rejected):
        placement.write([wanted])
    placement.write([replace(wanted, allocations={made.id: {"VCPU": 1}})])
    assert used(placement, made) == {"VCPU": 1}


def test_of_several_consumers_one_that_does_not_fit_leaves_none_written(
    placement: PlacementService,
) -> None:
    one, other = make(placement, "host-1", ROOM), make(placement, "host-2", ROOM)
    fits, fits_not = holder({one.id: {"VCPU": 4}}), holder({other.id: {"VCPU": 9}})
    with pytest.raises(NoValidHost) as refused:
        placement.write([fits, fits_not])
    assert refused.value.data["provider"] == other.id
    assert (used(placement, one), used(placement, other)) == ({}, {})
    placement.write([fits])


def test_several_consumers_are_summed_on_one_provider(placement: PlacementService) -> None:
    made = make(placement, "host-1", ROOM)
    with pytest.raises(NoValidHost) as refused:
        placement.write([holder({made.id: {"VCPU": 5}}), holder({made.id: {"VCPU": 4}})])
    assert (refused.value.data["need"], refused.value.data["have"]) == (9, 8)
    placement.write([holder({made.id: {"VCPU": 4}}), holder({made.id: {"VCPU": 4}})])
    assert used(placement, made) == {"VCPU": 8}


def test_what_one_consumer_gives_back_another_takes_in_the_same_write(
    placement: PlacementService,
) -> None:
    made = make(placement, "host-1", ROOM)
    giver = held(placement, made, {"VCPU": 8})
    taker = holder({made.id: {"VCPU": 8}})
    placement.write([emptied(giver), taker])
    assert placement.consumers_of(made.id) == {taker.id: {"VCPU": 8}}


def test_usages_are_summed_by_project_and_by_user(placement: PlacementService) -> None:
    one, other = make(placement, "host-1", ROOM), make(placement, "host-2", ROOM)
    held(placement, one, {"VCPU": 2, "MEMORY_MB": 64})
    placement.write([holder({other.id: {"VCPU": 1}}, user_id="user-2", kind="migration")])
    placement.write([holder({other.id: {"VCPU": 4}}, project_id="project-2")])
    assert placement.usages(PROJECT) == {"VCPU": 3, "MEMORY_MB": 64}
    assert placement.usages(PROJECT, USER) == {"VCPU": 2, "MEMORY_MB": 64}
    assert placement.usages(PROJECT, "user-2") == {"VCPU": 1}
    assert placement.usages("project-3") == {}


def test_a_claim_may_happen_twice(placement: PlacementService) -> None:
    made = make(placement, "host-1", ROOM)
    (candidate,) = placement.candidates(asking({"VCPU": 2}), 10).found
    consumer = holder({})
    allocate(placement, consumer, candidate)
    allocate(placement, consumer, candidate)
    assert used(placement, made) == {"VCPU": 2}
    release(placement, consumer.id)
    release(placement, consumer.id)
    assert used(placement, made) == {}


def test_a_claim_never_drops_what_its_consumer_holds_elsewhere(
    placement: PlacementService,
) -> None:
    one, other = make(placement, "host-1", ROOM), make(placement, "host-2", ROOM)
    consumer = held(placement, one, {"VCPU": 2})
    with pytest.raises(Rejected) as refused:
        allocate(placement, holder({}, consumer.id), _all_on(other.id, {"VCPU": 2}))
    assert refused.value.code == "already_claimed"
    assert placement.consumer(consumer.id) == consumer


def test_healing_writes_what_should_be_held_and_is_a_no_op_the_second_time(
    placement: PlacementService,
) -> None:
    one, other = make(placement, "host-1", ROOM), make(placement, "host-2", ROOM)
    consumer = held(placement, one, {"VCPU": 2})
    right = holder({other.id: {"VCPU": 1}}, consumer.id)
    assert heal(placement, right) is True
    healed = placement.consumer(consumer.id)
    assert heal(placement, right) is False
    assert placement.consumer(consumer.id) == healed
    assert (used(placement, one), used(placement, other)) == ({}, {"VCPU": 1})


@pytest.mark.parametrize(("room", "refused"), [(24, 0), (23, 1)])
def test_claims_at_once_take_all_the_room_and_no_more_and_none_is_told_of_a_conflict(
    placement: PlacementService, room: int, refused: int
) -> None:
    made = make(placement, "host-1", {"VCPU": Inventory(room)})

    def one_more(_: int) -> str:
        try:
            allocate(placement, holder({}), _all_on(made.id, {"VCPU": 1}))
        except NoValidHost as error:
            return error.code
        return "claimed"

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(one_more, range(24)))
    assert sorted(told) == ["claimed"] * room + ["no_capacity"] * refused
    assert used(placement, made) == {"VCPU": room}


def _all_on(provider_id: str, resources: dict[str, int]) -> Candidate:
    return Candidate({provider_id: resources}, {"": (provider_id,)}, provider_id)
