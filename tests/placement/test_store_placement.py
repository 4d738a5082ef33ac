"""Providers in our own tables: hosts as roots, trees, what they have, under generations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conductor.placement.local.instance_allocations import release
from conductor.placement.local.store_placement import StorePlacement
from conductor.placement.ports import ProviderQuery
from conductor.placement.providers import (
    MIGRATION,
    Consumer,
    Reshaping,
    over_committed,
    provider_id_of,
)
from conductor.placement.request_groups import TraitRule
from conductor.store import Inventory, UnitOfWork
from models.errors import Conflict, NoValidHost, Rejected
from tests.placement.one_host import AGGREGATE, GPU, NIC, ROOT, SHARED, a_root, hold, made, refused
from tests.scheduling.world import host

# Hosts


def test_a_host_is_the_root_of_its_tree(placement: StorePlacement, uow: UnitOfWork) -> None:
    child = made(placement, GPU, ROOT, VGPU=Inventory(4))
    root = placement.provider(ROOT)
    assert root is not None
    assert (root.name, root.root_id, root.parent_id) == ("h1", ROOT, None)
    assert (root.generation, root.inventories["VCPU"].total) == (1, 8)
    assert (child.parent_id, child.root_id) == (ROOT, ROOT)
    assert placement.providers(ProviderQuery(in_tree=GPU)) == [root, child]
    assert uow.providers.count() == 1


def test_what_is_written_of_a_host_is_its_row_one_version_later(
    placement: StorePlacement, uow: UnitOfWork
) -> None:
    placement.set_traits(ROOT, ["HW_CPU_X86_AVX2"], 1)
    placement.set_aggregates(ROOT, [AGGREGATE], 2)
    placement.set_inventories(ROOT, {"VCPU": Inventory(4), "DISK_GB": Inventory(10)}, 3)
    hold(placement, "i", {ROOT: {"VCPU": 2}})
    hold(placement, "m", {ROOT: {"VCPU": 1}}, kind=MIGRATION)
    hold(placement, "v", {ROOT: {"DISK_GB": 1}}, kind="volume")
    written = uow.hosts.get("h1")
    assert written is not None
    assert written.traits == ("HW_CPU_X86_AVX2",)
    assert written.aggregates == (AGGREGATE,)
    assert written.used == {"VCPU": 3, "DISK_GB": 1}
    assert (written.version, written.instances, written.updated_at) == (7, 2, 100.0)
    assert written.topology == a_root("h1").topology


def test_a_consumer_that_becomes_a_migration_is_still_one_guest(
    placement: StorePlacement, uow: UnitOfWork
) -> None:
    hold(placement, "i", {ROOT: {"VCPU": 2}})
    instance, migration = placement.consumer("i"), placement.consumer("m")
    held = instance.allocations
    placement.write(
        [
            replace(instance, allocations={}),
            replace(migration, allocations=held, kind=MIGRATION),
        ]
    )
    written = uow.hosts.get("h1")
    assert written is not None
    assert (written.instances, dict(written.used)) == (1, {"VCPU": 2})
    assert placement.consumer("i") == Consumer("i")
    assert placement.consumer("m").kind == MIGRATION


def test_what_the_port_wrote_can_be_given_back_by_an_instances_end(
    placement: StorePlacement, uow: UnitOfWork
) -> None:
    hold(placement, "i", {ROOT: {"VCPU": 2}})
    (held,) = uow.allocations.where(consumer_id="i")
    release(uow, held, None)
    written = uow.hosts.get("h1")
    assert written is not None
    assert (written.instances, dict(written.used)) == (0, {})


def test_a_host_without_an_id_of_a_provider_is_none(
    placement: StorePlacement, uow: UnitOfWork
) -> None:
    uow.hosts.add(host("old"))
    assert placement.provider("") is None
    assert [provider.name for provider in placement.providers(ProviderQuery())] == ["h1"]


# Trees


def test_ensuring_a_provider_again_changes_nothing(placement: StorePlacement) -> None:
    first = made(placement, GPU, ROOT, VGPU=Inventory(4))
    assert placement.ensure_provider(GPU, "another name") == first


def test_the_id_of_a_host_is_adopted(placement: StorePlacement) -> None:
    assert placement.ensure_provider(ROOT, "h1").generation == 1


def test_a_taken_name_is_refused_be_it_a_hosts(placement: StorePlacement) -> None:
    placement.ensure_provider(GPU, "gpu")
    for name in ("gpu", "h1"):
        error = refused(Rejected, lambda name=name: placement.ensure_provider(NIC, name))
        assert (error.code, error.key) == ("provider_name_taken", "name")


def test_a_parent_has_to_be_there(placement: StorePlacement) -> None:
    error = refused(Rejected, lambda: placement.ensure_provider(GPU, "gpu", "nobody"))
    assert (error.code, error.data) == ("provider_unknown", {"provider": "nobody"})


def test_parents_come_before_children(placement: StorePlacement) -> None:
    placement.ensure_provider(GPU, "a card", ROOT)
    placement.ensure_provider(NIC, "a function", GPU)
    placement.ensure_provider(SHARED, "a pool")
    names = [provider.name for provider in placement.providers(ProviderQuery())]
    assert names == ["a pool", "h1", "a card", "a function"]


def test_providers_are_found_by_name_tree_traits_and_aggregates(placement: StorePlacement) -> None:
    placement.ensure_traits(["CUSTOM_GOLD"])
    gpu = placement.ensure_provider(GPU, "gpu", ROOT)
    gpu = placement.set_traits(GPU, ["CUSTOM_GOLD"], gpu.generation)
    gpu = placement.set_aggregates(GPU, [AGGREGATE], gpu.generation)
    placement.ensure_provider(SHARED, "pool")
    gold = TraitRule(required=frozenset({"CUSTOM_GOLD"}))
    for query in (
        ProviderQuery(name="gpu"),
        ProviderQuery(name="gpu", in_tree=ROOT),
        ProviderQuery(traits=gold),
        ProviderQuery(member_of=(frozenset({AGGREGATE, "x"}),)),
    ):
        assert placement.providers(query) == [gpu]
    for query in (
        ProviderQuery(name="gpu", in_tree=SHARED),
        ProviderQuery(in_tree="nobody"),
        ProviderQuery(member_of=(frozenset({AGGREGATE}), frozenset({"x"}))),
        ProviderQuery(name="h1", traits=gold),
    ):
        assert placement.providers(query) == []
    unheard = ProviderQuery(traits=TraitRule(forbidden=frozenset({"CUSTOM_UNHEARD"})))
    assert refused(Rejected, lambda: placement.providers(unheard)).code == "trait_unknown"


def test_a_provider_goes_once_it_is_unused_and_childless(placement: StorePlacement) -> None:
    made(placement, GPU, ROOT, VGPU=Inventory(4))
    placement.ensure_provider(NIC, "nic", GPU)
    error = refused(Rejected, lambda: placement.delete_provider(GPU))
    assert (error.code, error.data["children"]) == ("provider_has_children", [NIC])
    placement.delete_provider(NIC)
    hold(placement, "i", {GPU: {"VGPU": 1}})
    error = refused(Rejected, lambda: placement.delete_provider(GPU))
    assert (error.code, error.data["consumers"]) == ("provider_in_use", ["i"])
    hold(placement, "i", {})
    placement.delete_provider(GPU)
    placement.delete_provider(GPU)
    assert placement.provider(GPU) is None


def test_a_host_is_not_deleted_as_a_provider(placement: StorePlacement) -> None:
    error = refused(Rejected, lambda: placement.delete_provider(ROOT))
    assert error.code == "host_is_provider"


# What providers have


def test_what_is_set_as_it_is_keeps_its_generation(placement: StorePlacement) -> None:
    placement.ensure_traits(["CUSTOM_GOLD"])
    gpu = made(placement, GPU, None, VGPU=Inventory(4))
    gpu = placement.set_traits(GPU, ["CUSTOM_GOLD"], gpu.generation)
    gpu = placement.set_aggregates(GPU, [AGGREGATE], gpu.generation)
    assert gpu.generation == 3
    assert placement.set_inventories(GPU, {"VGPU": Inventory(4)}, 3) == gpu
    assert placement.set_traits(GPU, ("CUSTOM_GOLD",), 3) == gpu
    assert placement.set_aggregates(GPU, {AGGREGATE}, 3) == gpu
    assert placement.provider(GPU) == gpu


@pytest.mark.parametrize("provider_id", [GPU, ROOT])
def test_an_old_generation_is_a_conflict(placement: StorePlacement, provider_id: str) -> None:
    placement.ensure_provider(GPU, "gpu")
    for write in (
        lambda: placement.set_inventories(provider_id, {}, 7),
        lambda: placement.set_traits(provider_id, [], 7),
        lambda: placement.set_aggregates(provider_id, [], 7),
        lambda: placement.reshape([Reshaping(provider_id, {}, 7)], []),
    ):
        error = refused(Conflict, write)
        assert (error.code, error.data) == ("generation_conflict", {"provider": provider_id})


def test_nothing_is_set_of_a_provider_that_is_not_there(placement: StorePlacement) -> None:
    for write in (
        lambda: placement.set_inventories(GPU, {}, 0),
        lambda: placement.set_traits(GPU, [], 0),
        lambda: placement.set_aggregates(GPU, [], 0),
        lambda: placement.consumers_of(GPU),
        lambda: placement.write([Consumer("i", {GPU: {"VGPU": 1}})]),
    ):
        assert refused(Rejected, write).code == "provider_unknown"


@pytest.mark.parametrize(
    ("inventory", "key"),
    [
        (Inventory(0), "VGPU.total"),
        (Inventory(2**31), "VGPU.total"),
        (Inventory(4, -1), "VGPU.reserved"),
        (Inventory(4, 5), "VGPU.reserved"),
        (Inventory(4, 0, 0.0), "VGPU.ratio"),
        (Inventory(4, 0, float("nan")), "VGPU.ratio"),
        (Inventory(4, 0, float("inf")), "VGPU.ratio"),
        (Inventory(4, min_unit=0), "VGPU.min_unit"),
        (Inventory(4, max_unit=0), "VGPU.max_unit"),
        (Inventory(4, step_size=0), "VGPU.step_size"),
    ],
)
def test_an_inventory_that_cannot_be_is_refused_by_the_number_that_is_wrong(
    placement: StorePlacement, inventory: Inventory, key: str
) -> None:
    placement.ensure_provider(GPU, "gpu")
    error = refused(Rejected, lambda: placement.set_inventories(GPU, {"VGPU": inventory}, 0))
    assert (error.code, error.key) == ("inventory_invalid", key)


def test_classes_and_traits_are_standard_or_made_before(placement: StorePlacement) -> None:
    placement.ensure_provider(GPU, "gpu")
    has = {"CUSTOM_FPGA": Inventory(1)}
    error = refused(Rejected, lambda: placement.set_inventories(GPU, has, 0))
    assert (error.code, error.data) == ("resource_class_unknown", {"name": "CUSTOM_FPGA"})
    error = refused(Rejected, lambda: placement.set_traits(GPU, ["CUSTOM_GOLD"], 0))
    assert (error.code, error.data) == ("trait_unknown", {"name": "CUSTOM_GOLD"})
    for _ in range(2):
        placement.ensure_classes(["CUSTOM_FPGA", "VCPU"])
        placement.ensure_traits(["CUSTOM_GOLD", "HW_CPU_X86_AVX2"])
    placement.set_inventories(GPU, has, 0)
    placement.set_traits(GPU, ["CUSTOM_GOLD", "HW_CPU_X86_AVX2"], 1)


@pytest.mark.parametrize("name", ["GOLD", "CUSTOM_", "CUSTOM_fpga", "CUSTOM_A B", "CUSTOM_É"])
def test_a_name_that_is_no_custom_one_is_not_made(placement: StorePlacement, name: str) -> None:
    error = refused(Rejected, lambda: placement.ensure_classes([name]))
    assert error.code == "resource_class_unknown"
    assert refused(Rejected, lambda: placement.ensure_traits([name])).code == "trait_unknown"


def test_what_a_host_tells_of_may_stay_though_nobody_made_it(
    placement: StorePlacement, uow: UnitOfWork
) -> None:
    told = {"CUSTOM_PCI_GPU": Inventory(2)}
    uow.hosts.add(a_root("h2", inventory=told, traits=("CUSTOM_ODD",)))
    h2 = provider_id_of("h2")
    placement.set_inventories(h2, {**told, "VCPU": Inventory(2)}, 1)
    placement.set_traits(h2, ["CUSTOM_ODD", "HW_CPU_X86_AVX2"], 2)
    hold(placement, "i", {h2: {"CUSTOM_PCI_GPU": 1}})


def test_a_class_in_use_cannot_be_removed(placement: StorePlacement) -> None:
    gpu = made(placement, GPU, None, VGPU=Inventory(4), VCPU=Inventory(1))
    hold(placement, "i", {GPU: {"VGPU": 1}})
    error = refused(Rejected, lambda: placement.set_inventories(GPU, {}, gpu.generation + 1))
    assert (error.code, error.data["classes"]) == ("inventory_in_use", ["VGPU"])
    placement.set_inventories(GPU, {"VGPU": Inventory(4)}, gpu.generation + 1)


def test_less_than_is_in_use_is_taken_and_then_only_more_is_refused(
    placement: StorePlacement,
) -> None:
    gpu = made(placement, GPU, None, VGPU=Inventory(8))
    hold(placement, "i", {GPU: {"VGPU": 4}})
    hold(placement, "j", {GPU: {"VGPU": 3}})
    shrunk = placement.set_inventories(GPU, {"VGPU": Inventory(2)}, gpu.generation + 2)
    assert over_committed(shrunk) == {"VGPU": 5}
    error = refused(NoValidHost, lambda: hold(placement, "k", {GPU: {"VGPU": 1}}))
    assert (error.code, error.data["need"], error.data["have"]) == ("no_capacity", 1, 0)
    refused(NoValidHost, lambda: hold(placement, "i", {GPU: {"VGPU": 5}}))
    hold(placement, "i", {GPU: {"VGPU": 4}}, user_id="ann")
    hold(placement, "i", {GPU: {"VGPU": 3}})
    taken = placement.consumer("i")
    placement.write(
        [replace(taken, allocations={}), Consumer("m", taken.allocations, kind=MIGRATION)]
    )
    assert placement.consumers_of(GPU) == {"j": {"VGPU": 3}, "m": {"VGPU": 3}}
