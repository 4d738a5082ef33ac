"""A cached tree of providers: read once, flushed in order, a failure sparing all others."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from conductor.placement.ports import PlacementService
from conductor.placement.providers import SHARING
from conductor.placement.sync.provider_tree import ProviderTree
from conductor.store import Inventory, Provider
from models.errors import Conflict, Rejected
from tests.contracts.placement.world import (
    AVX2,
    ROOM,
    SSD,
    again,
    held,
    holder,
    make,
    new_id,
    shared_storage,
    used,
)

WRITES = frozenset(
    {
        *("ensure_provider", "delete_provider", "set_inventories", "set_traits"),
        *("set_aggregates", "ensure_classes", "ensure_traits", "write", "reshape"),
    }
)


class Watched:
    """A placement service that notes which provider each call is about."""

    def __init__(self, placement: PlacementService) -> None:
        self._placement = placement
        self.calls: list[tuple[str, object]] = []

    def __getattr__(self, name: str) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            self.calls.append((name, arguments[0] if arguments else None))
            return getattr(self._placement, name)(*arguments, **named)

        return call

    def written(self, *names: str) -> list[tuple[str, object]]:
        """Return the writes since the last time, of these names only where some are given."""
        found = [call for call in self.calls if call[0] in (names or WRITES)]
        self.calls.clear()
        return found


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def wanted(name: str, parent: Provider | None = None, **fields: object) -> Provider:
    """Return a provider as it is to be."""
    provider_id = new_id()
    root = parent.root_id if parent else provider_id
    return Provider(provider_id, name, parent.id if parent else None, root, **fields)


def test_a_tree_whose_root_is_not_there_yet_is_empty(placement: PlacementService) -> None:
    assert ProviderTree(placement, new_id()).providers() == []


def test_root_and_children_are_ensured_once(placement: PlacementService) -> None:
    watched = Watched(placement)
    root_id, child_id = new_id(), new_id()
    tree = ProviderTree(watched, root_id)
    for _ in range(2):
        root = tree.ensure(root_id, "host-1")
        child = tree.ensure(child_id, "host-1-numa-0", root.id)
    assert tree.providers() == [root, child] == tree.refresh()
    made = [("ensure_provider", root_id), ("ensure_provider", child_id)]
    assert watched.written() == made


def test_a_flush_creates_top_down_updates_bottom_up_and_deletes_bottom_up(
    placement: PlacementService,
) -> None:
    watched = Watched(placement)
    root = wanted("host-1", inventories={"MEMORY_MB": Inventory(64)})
    cell = wanted("cell", root, inventories={"VCPU": Inventory(4)}, traits=frozenset({AVX2}))
    nic = wanted("nic", cell, inventories={"SRIOV_NET_VF": Inventory(2)})
    tree = ProviderTree(watched, root.id)
    tree.flush([nic, cell, root])
    assert watched.written("ensure_provider", "set_inventories") == [
        *(("ensure_provider", provider.id) for provider in (root, cell, nic)),
        *(("set_inventories", provider.id) for provider in (nic, cell, root)),
    ]
    for provider in (root, cell, nic):
        there = again(placement, provider)
        assert (there.inventories, there.traits) == (provider.inventories, provider.traits)
        assert (there.parent_id, there.root_id) == (provider.parent_id, root.id)
    tree.flush([root])
    assert watched.written() == [("delete_provider", nic.id), ("delete_provider", cell.id)]
    assert tree.providers() == [again(placement, root)]


def test_what_is_as_wanted_is_not_sent(placement: PlacementService) -> None:
    watched = Watched(placement)
    root = wanted("host-1", inventories=ROOM, traits=frozenset({AVX2}))
    tree = ProviderTree(watched, root.id)
    tree.flush([root])
    watched.written()
    tree.flush([root])
    assert watched.calls == []
    tree.flush([replace(root, traits=frozenset({SSD}))])
    assert watched.written() == [("ensure_traits", []), ("set_traits", root.id)]


def test_custom_classes_and_traits_are_made_on_the_way(placement: PlacementService) -> None:
    root = wanted(
        "host-1",
        inventories={"CUSTOM_FPGA": Inventory(1)},
        traits=frozenset({"CUSTOM_GOLD"}),
        aggregates=frozenset({new_id()}),
    )
    ProviderTree(placement, root.id).flush([root])
    there = again(placement, root)
    assert there.inventories == root.inventories
    assert (there.traits, there.aggregates) == (root.traits, root.aggregates)


def test_what_is_known_of_a_tree_expires_after_300_seconds(placement: PlacementService) -> None:
    root = make(placement, "host-1", ROOM)
    clock = Clock()
    tree = ProviderTree(placement, root.id, clock)
    tree.providers()
    after = placement.set_traits(root.id, [AVX2], root.generation)
    clock.now = 300.0
    assert tree.providers() == [root]
    clock.now = 300.5
    assert tree.providers() == [after]


def test_a_conflict_makes_only_that_provider_be_read_anew(placement: PlacementService) -> None:
    watched = Watched(placement)
    root = make(placement, "host-1", ROOM)
    child = make(placement, "child", {"VCPU": Inventory(4)}, parent=root)
    tree = ProviderTree(watched, root.id)
    tree.providers()
    held(placement, root, {"VCPU": 1})
    larger = {"VCPU": Inventory(16), "MEMORY_MB": Inventory(8192)}
    plan = [replace(root, inventories=larger), replace(child, traits=frozenset({AVX2}))]
    with pytest.raises(Conflict) as failed:
        tree.flush(plan)
    assert failed.value.code == "tree_not_flushed"
    assert set(failed.value.data["failures"]) == {root.id}
    assert failed.value.data["failures"][root.id]["code"] == "generation_conflict"
    assert again(placement, child).traits == {AVX2}
    watched.calls.clear()
    tree.flush(plan)
    assert watched.calls[0] == ("provider", root.id)
    assert watched.written() == [("ensure_classes", []), ("set_inventories", root.id)]
    assert again(placement, root).inventories == larger


def test_failures_spare_all_other_providers_and_are_told_together(
    placement: PlacementService,
) -> None:
    root = make(placement, "host-1", ROOM)
    busy = make(placement, "busy", {"VCPU": Inventory(4)}, parent=root)
    kept = make(placement, "kept", {"VCPU": Inventory(4)}, parent=root)
    make(placement, "elsewhere")
    held(placement, busy, {"VCPU": 1})
    clashing, fresh = wanted("elsewhere", root), wanted("fresh", root, inventories=ROOM)
    bad = replace(root, inventories={"VCPU": Inventory(0)})
    with pytest.raises(Rejected) as failed:
        ProviderTree(placement, root.id).flush(
            [bad, replace(kept, traits=frozenset({SSD})), clashing, fresh]
        )
    codes = {name: fault["code"] for name, fault in failed.value.data["failures"].items()}
    assert codes == {
        busy.id: "provider_in_use",
        clashing.id: "provider_name_taken",
        root.id: "inventory_invalid",
    }
    assert again(placement, kept).traits == {SSD}
    assert again(placement, fresh).inventories == ROOM
    assert again(placement, root).inventories == ROOM
    assert again(placement, busy).inventories


def test_providers_that_share_with_a_tree_are_found_by_its_aggregates(
    placement: PlacementService,
) -> None:
    aggregate = new_id()
    root = make(placement, "host-1", ROOM, aggregates=[aggregate])
    storage = shared_storage(placement, aggregate)
    make(placement, "other-storage", traits=[SHARING], aggregates=[new_id()])
    assert ProviderTree(placement, root.id).sharing() == [storage]
    assert ProviderTree(placement, make(placement, "host-2").id).sharing() == []


def test_deleting_a_tree_drops_what_the_named_consumers_hold_of_it_and_nothing_else(
    placement: PlacementService,
) -> None:
    dead, alive = make(placement, "dead", ROOM), make(placement, "alive", ROOM)
    child = make(placement, "dead-numa-0", {"PCPU": Inventory(4)}, parent=dead)
    evacuated = holder({dead.id: {"VCPU": 1}, child.id: {"PCPU": 2}, alive.id: {"VCPU": 1}})
    placement.write([evacuated])
    gone = held(placement, dead, {"MEMORY_MB": 64})
    ProviderTree(placement, dead.id).delete([evacuated.id, gone.id, new_id()])
    assert placement.provider(dead.id) is None
    assert placement.provider(child.id) is None
    assert placement.consumer(evacuated.id).allocations == {alive.id: {"VCPU": 1}}
    assert placement.consumer(gone.id).allocations == {}


def test_deleting_a_tree_that_somebody_else_uses_changes_nothing_and_names_them(
    placement: PlacementService,
) -> None:
    dead = make(placement, "dead", ROOM)
    child = make(placement, "dead-numa-0", {"PCPU": Inventory(4)}, parent=dead)
    evacuated, left = held(placement, dead, {"VCPU": 1}), held(placement, child, {"PCPU": 1})
    with pytest.raises(Rejected) as refused:
        ProviderTree(placement, dead.id).delete([evacuated.id])
    assert refused.value.code == "provider_in_use"
    assert refused.value.data["consumers"] == [left.id]
    assert placement.consumer(evacuated.id) == evacuated
    assert used(placement, dead) == {"VCPU": 1}


def test_deleting_a_tree_that_is_gone_is_fine(placement: PlacementService) -> None:
    ProviderTree(placement, new_id()).delete()
