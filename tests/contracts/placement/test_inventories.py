"""What providers have: replaced under their generation, kept while it is in use."""

import pytest

from conductor.placement.ports import PlacementService
from conductor.placement.providers import over_committed
from conductor.store import Inventory
from models.errors import Conflict, NoValidHost, Rejected
from tests.contracts.placement.world import (
    ROOM,
    again,
    asking,
    emptied,
    held,
    holder,
    make,
    places,
    used,
)


def test_inventories_are_kept_as_they_are_given(placement: PlacementService) -> None:
    placement.ensure_classes(["CUSTOM_FPGA"])
    made = make(placement, "host-1")
    wanted = {
        "VCPU": Inventory(16, 2, 4.0, 1, 8, 2),
        "MEMORY_MB": Inventory(4096, 512, 1.5),
        "CUSTOM_FPGA": Inventory(2),
    }
    after = placement.set_inventories(made.id, wanted, made.generation)
    assert after.inventories == wanted
    assert after.generation > made.generation
    assert again(placement, made) == after


def test_inventories_are_replaced_as_a_whole(placement: PlacementService) -> None:
    made = make(placement, "host-1", ROOM)
    after = placement.set_inventories(made.id, {"DISK_GB": Inventory(10)}, made.generation)
    assert set(after.inventories) == {"DISK_GB"}


def test_emptying_inventories_carries_the_generation(placement: PlacementService) -> None:
    made = make(placement, "host-1", ROOM)
    with pytest.raises(Conflict) as moved:
        placement.set_inventories(made.id, {}, made.generation - 1)
    assert moved.value.code == "generation_conflict"
    assert again(placement, made).inventories == ROOM
    assert placement.set_inventories(made.id, {}, made.generation).inventories == {}


def test_a_claim_makes_the_generation_older(placement: PlacementService) -> None:
    made = make(placement, "host-1", ROOM)
    held(placement, made, {"VCPU": 1})
    with pytest.raises(Conflict):
        placement.set_inventories(made.id, {"VCPU": Inventory(16)}, made.generation)


def test_removing_a_class_that_is_in_use_is_refused(placement: PlacementService) -> None:
    made = make(placement, "host-1", ROOM)
    held(placement, made, {"VCPU": 1, "MEMORY_MB": 64})
    now = again(placement, made)
    with pytest.raises(Rejected) as refused:
        placement.set_inventories(made.id, {"VCPU": Inventory(8)}, now.generation)
    assert refused.value.code == "inventory_in_use"
    assert refused.value.data["classes"] == ["MEMORY_MB"]
    assert again(placement, made) == now


def test_lowering_an_inventory_under_its_use_is_taken_flagged_and_blocks_new_claims(
    placement: PlacementService,
) -> None:
    made = make(placement, "host-1", ROOM)
    consumer = held(placement, made, {"VCPU": 6})
    lowered = {"VCPU": Inventory(4), "MEMORY_MB": Inventory(4096)}
    placement.set_inventories(made.id, lowered, again(placement, made).generation)
    now = again(placement, made)
    assert now.inventories == lowered
    assert over_committed(now) == {"VCPU": 2}
    assert places(placement, asking({"VCPU": 1})) == set()
    with pytest.raises(NoValidHost) as refused:
        placement.write([holder({made.id: {"VCPU": 1}})])
    assert refused.value.code == "no_capacity"
    assert (refused.value.data["need"], refused.value.data["have"]) == (1, 0)
    assert placement.consumer(consumer.id) == consumer


def test_what_is_over_committed_may_be_handed_on_and_given_back(
    placement: PlacementService,
) -> None:
    made = make(placement, "host-1", ROOM)
    consumer = held(placement, made, {"VCPU": 6})
    placement.set_inventories(made.id, {"VCPU": Inventory(4)}, again(placement, made).generation)
    heir = holder({made.id: {"VCPU": 6}}, kind="migration")
    placement.write([emptied(consumer), heir])
    assert used(placement, made) == {"VCPU": 6}
    placement.write([emptied(placement.consumer(heir.id))])
    assert used(placement, made) == {}


@pytest.mark.parametrize(
    "inventory",
    [
        Inventory(0),
        Inventory(-1),
        Inventory(2**31),
        Inventory(8, -1),
        Inventory(8, 9),
        Inventory(8, 0, 0.0),
        Inventory(8, 0, -1.0),
        Inventory(8, min_unit=0),
        Inventory(8, max_unit=0),
        Inventory(8, step_size=0),
    ],
)
def test_an_inventory_that_cannot_be_is_refused(
    placement: PlacementService, inventory: Inventory
) -> None:
    made = make(placement, "host-1")
    with pytest.raises(Rejected) as refused:
        placement.set_inventories(made.id, {"VCPU": inventory}, made.generation)
    assert refused.value.code == "inventory_invalid"
    assert refused.value.key is not None


def test_all_of_an_inventory_may_be_reserved(placement: PlacementService) -> None:
    made = make(placement, "host-1", {"VCPU": Inventory(8, 8)})
    assert places(placement, asking({"VCPU": 1})) == set()
    assert again(placement, made).inventories["VCPU"].capacity == 0


def test_an_inventory_of_a_class_that_nobody_made_is_refused(
    placement: PlacementService,
) -> None:
    made = make(placement, "host-1")
    with pytest.raises(Rejected) as refused:
        placement.set_inventories(made.id, {"CUSTOM_NOBODY_MADE_ME": Inventory(1)}, made.generation)
    assert refused.value.code == "resource_class_unknown"
    assert refused.value.data["name"] == "CUSTOM_NOBODY_MADE_ME"


def test_a_custom_class_may_be_made_any_number_of_times(placement: PlacementService) -> None:
    placement.ensure_classes(["CUSTOM_FPGA", "VCPU"])
    placement.ensure_classes(["CUSTOM_FPGA"])
    made = make(placement, "host-1")
    room = {"CUSTOM_FPGA": Inventory(1)}
    assert placement.set_inventories(made.id, room, made.generation).inventories == room
