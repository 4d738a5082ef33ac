"""Inventories move between classes and providers with what consumers hold of them, in one go."""

from dataclasses import replace

import pytest

from conductor.placement.ports import PlacementService
from conductor.placement.providers import Consumer, Reshaping, Resources
from conductor.store import Inventory, Provider
from models.errors import Conflict, NoValidHost, Rejected
from tests.contracts.placement.world import ROOM, again, held, holder, make, new_id, used

SPLIT = {"VCPU": Inventory(4), "PCPU": Inventory(4), "MEMORY_MB": Inventory(4096)}


def shaped(provider: Provider, inventories: dict[str, Inventory]) -> Reshaping:
    return Reshaping(provider.id, inventories, provider.generation)


def holding(consumer: Consumer, provider: Provider, resources: Resources) -> Consumer:
    return replace(consumer, allocations={provider.id: resources})


def test_shared_cpus_become_dedicated_ones_under_running_consumers_and_back(
    placement: PlacementService,
) -> None:
    host = make(placement, "host-1", ROOM)
    pinned = held(placement, host, {"VCPU": 4, "MEMORY_MB": 64})
    plain = held(placement, host, {"VCPU": 2})
    placement.reshape(
        [shaped(again(placement, host), SPLIT)],
        [holding(pinned, host, {"PCPU": 4, "MEMORY_MB": 64})],
    )
    assert again(placement, host).inventories == SPLIT
    assert used(placement, host) == {"VCPU": 2, "PCPU": 4, "MEMORY_MB": 64}
    assert placement.consumer(plain.id) == plain
    pinned = placement.consumer(pinned.id)
    placement.reshape([shaped(again(placement, host), ROOM)], [holding(pinned, host, {"VCPU": 4})])
    assert used(placement, host) == {"VCPU": 6}


def test_an_inventory_moves_to_a_child_with_what_is_held_of_it(
    placement: PlacementService,
) -> None:
    root = make(placement, "host-1", ROOM)
    consumer = held(placement, root, {"VCPU": 3, "MEMORY_MB": 64})
    child = make(placement, "numa-0", parent=root)
    after = replace(consumer, allocations={root.id: {"MEMORY_MB": 64}, child.id: {"VCPU": 3}})
    placement.reshape(
        [
            shaped(again(placement, root), {"MEMORY_MB": Inventory(4096)}),
            shaped(child, {"VCPU": Inventory(8)}),
        ],
        [after],
    )
    assert (used(placement, root), used(placement, child)) == ({"MEMORY_MB": 64}, {"VCPU": 3})


def test_a_consumer_left_behind_refuses_the_whole_reshape(placement: PlacementService) -> None:
    host = make(placement, "host-1", ROOM)
    moved, left = held(placement, host, {"VCPU": 2}), held(placement, host, {"VCPU": 1})
    before = again(placement, host)
    with pytest.raises(Rejected) as refused:
        placement.reshape(
            [shaped(before, {"PCPU": Inventory(8)})], [holding(moved, host, {"PCPU": 2})]
        )
    assert refused.value.code == "inventory_in_use"
    assert refused.value.data["classes"] == ["VCPU"]
    assert again(placement, host) == before
    assert [placement.consumer(consumer.id) for consumer in (moved, left)] == [moved, left]


def test_what_does_not_fit_the_new_shape_refuses_all_of_it(placement: PlacementService) -> None:
    host = make(placement, "host-1", ROOM)
    consumer = held(placement, host, {"VCPU": 6})
    before = again(placement, host)
    with pytest.raises(NoValidHost) as refused:
        placement.reshape([shaped(before, SPLIT)], [holding(consumer, host, {"PCPU": 6})])
    assert refused.value.data["resource_class"] == "PCPU"
    assert (refused.value.data["need"], refused.value.data["have"]) == (6, 4)
    assert again(placement, host) == before


def test_a_reshape_under_an_old_generation_changes_nothing(placement: PlacementService) -> None:
    host = make(placement, "host-1", ROOM)
    old = held(placement, host, {"VCPU": 2})
    placement.write([holding(old, host, {"VCPU": 3})])
    before = again(placement, host)
    consumer = placement.consumer(old.id)
    attempts = [
        (replace(before, generation=before.generation - 1), consumer),
        (before, old),
        (before, replace(old, generation=None)),
    ]
    for provider, holder_ in attempts:
        with pytest.raises(Conflict) as moved:
            placement.reshape([shaped(provider, SPLIT)], [holding(holder_, host, {"PCPU": 3})])
        assert moved.value.code == "generation_conflict"
    assert again(placement, host) == before


def test_a_reshape_of_what_is_not_there_is_refused(placement: PlacementService) -> None:
    host = make(placement, "host-1", ROOM)
    with pytest.raises(Rejected) as refused:
        placement.reshape([Reshaping(new_id(), ROOM, 0)], [])
    assert refused.value.code == "provider_unknown"
    with pytest.raises(Rejected) as refused:
        placement.reshape([shaped(host, ROOM)], [holder({new_id(): {"VCPU": 1}})])
    assert refused.value.code == "provider_unknown"
    with pytest.raises(Rejected) as refused:
        placement.reshape([shaped(host, {"CUSTOM_NOBODY_MADE_ME": Inventory(1)})], [])
    assert refused.value.code == "resource_class_unknown"
    with pytest.raises(Rejected) as refused:
        placement.reshape([shaped(host, {"VCPU": Inventory(0)})], [])
    assert refused.value.code == "inventory_invalid"
