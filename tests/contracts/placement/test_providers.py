"""Providers in trees: made, found, changed under their generation, deleted."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from conductor.placement.ports import PlacementService, ProviderQuery
from conductor.placement.request_groups import TraitRule
from conductor.store import Inventory, Provider
from models.errors import Conflict, Rejected
from tests.contracts.placement.world import (
    AVX2,
    ROOM,
    SRIOV,
    SSD,
    again,
    held,
    make,
    needs,
    new_id,
)


def test_a_provider_that_is_not_there_is_nothing(placement: PlacementService) -> None:
    assert placement.provider(new_id()) is None


def test_a_new_provider_is_its_own_root_and_has_nothing(placement: PlacementService) -> None:
    made = placement.ensure_provider(new_id(), "host-1")
    assert made == Provider(made.id, "host-1", None, made.id, made.generation)
    assert placement.provider(made.id) == made


def test_ensuring_a_provider_twice_gives_the_one_that_is_there(
    placement: PlacementService,
) -> None:
    made = make(placement, "host-1", ROOM)
    assert placement.ensure_provider(made.id, "host-1") == made


def test_those_that_make_one_provider_at_once_all_get_that_one(
    placement: PlacementService,
) -> None:
    provider_id = new_id()
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: placement.ensure_provider(provider_id, "host-1"), range(8)))
    assert made == [placement.provider(provider_id)] * 8


def test_a_name_that_another_provider_has_is_refused(placement: PlacementService) -> None:
    owner, ours = make(placement, "host-1"), new_id()
    with pytest.raises(Rejected) as refused:
        placement.ensure_provider(ours, "host-1")
    assert refused.value.code == "provider_name_taken"
    assert owner.id in refused.value.message
    assert ours in refused.value.message


def test_a_child_is_in_the_tree_of_its_root(placement: PlacementService) -> None:
    root = make(placement, "host-1")
    cell = make(placement, "host-1-numa-0", parent=root)
    device = make(placement, "host-1-nic", parent=cell)
    assert (device.parent_id, device.root_id) == (cell.id, root.id)


def test_a_parent_that_is_not_there_is_refused(placement: PlacementService) -> None:
    with pytest.raises(Rejected) as refused:
        placement.ensure_provider(new_id(), "child", new_id())
    assert refused.value.code == "provider_unknown"


def test_a_tree_is_found_from_any_of_its_members_parents_first(
    placement: PlacementService,
) -> None:
    root = make(placement, "z-root")
    child = make(placement, "m-child", parent=root)
    grandchild = make(placement, "a-grandchild", parent=child)
    make(placement, "other")
    for member in (root, child, grandchild):
        found = placement.providers(ProviderQuery(in_tree=member.id))
        assert [provider.name for provider in found] == ["z-root", "m-child", "a-grandchild"]


def test_providers_are_found_by_name(placement: PlacementService) -> None:
    wanted = make(placement, "host-1", ROOM)
    make(placement, "host-2")
    assert placement.providers(ProviderQuery(name="host-1")) == [wanted]
    assert placement.providers(ProviderQuery(name="host-3")) == []


def test_a_tree_of_nobody_is_empty(placement: PlacementService) -> None:
    assert placement.providers(ProviderQuery(in_tree=new_id())) == []


@pytest.mark.parametrize(
    ("rule", "names"),
    [
        (needs(AVX2), {"fast", "both"}),
        (needs(AVX2, SSD), {"both"}),
        (TraitRule(forbidden=frozenset({SSD})), {"fast", "plain"}),
        (TraitRule(any_of=(frozenset({AVX2, SSD}),)), {"fast", "both", "ssd"}),
        (TraitRule(frozenset({AVX2}), (), frozenset({AVX2})), set()),
        (TraitRule(any_of=(frozenset({SSD}),), forbidden=frozenset({SSD})), set()),
    ],
)
def test_providers_are_found_by_their_traits(
    placement: PlacementService, rule: TraitRule, names: set[str]
) -> None:
    make(placement, "fast", traits=[AVX2])
    make(placement, "ssd", traits=[SSD])
    make(placement, "both", traits=[AVX2, SSD])
    make(placement, "plain")
    assert {provider.name for provider in placement.providers(ProviderQuery(traits=rule))} == names


def test_a_question_about_a_trait_that_nobody_made_is_refused(
    placement: PlacementService,
) -> None:
    with pytest.raises(Rejected) as refused:
        placement.providers(ProviderQuery(traits=needs("CUSTOM_NOBODY_MADE_ME")))
    assert refused.value.code == "trait_unknown"
    assert refused.value.data["name"] == "CUSTOM_NOBODY_MADE_ME"


def test_providers_are_found_by_one_aggregate_of_each_set(placement: PlacementService) -> None:
    one, two, three = new_id(), new_id(), new_id()
    make(placement, "in-one", aggregates=[one])
    make(placement, "in-both", aggregates=[two, three])
    query = ProviderQuery(member_of=(frozenset({one, two}), frozenset({three})))
    assert [provider.name for provider in placement.providers(query)] == ["in-both"]


def test_traits_are_replaced_under_the_generation_that_was_read(
    placement: PlacementService,
) -> None:
    made = make(placement, "host-1", traits=[AVX2])
    after = placement.set_traits(made.id, [SSD, SRIOV], made.generation)
    assert after.traits == {SSD, SRIOV}
    assert after.generation > made.generation
    assert again(placement, made) == after
    with pytest.raises(Conflict) as moved:
        placement.set_traits(made.id, [], made.generation)
    assert moved.value.code == "generation_conflict"
    assert again(placement, made) == after


def test_emptying_traits_carries_the_generation(placement: PlacementService) -> None:
    made = make(placement, "host-1", traits=[AVX2])
    with pytest.raises(Conflict):
        placement.set_traits(made.id, [], made.generation - 1)
    assert placement.set_traits(made.id, [], made.generation).traits == frozenset()


def test_a_trait_that_nobody_made_is_refused(placement: PlacementService) -> None:
    made = make(placement, "host-1")
    with pytest.raises(Rejected) as refused:
        placement.set_traits(made.id, [AVX2, "CUSTOM_NOBODY_MADE_ME"], made.generation)
    assert refused.value.code == "trait_unknown"
    assert again(placement, made).traits == frozenset()


def test_a_custom_trait_may_be_made_any_number_of_times(placement: PlacementService) -> None:
    made = make(placement, "host-1")
    placement.ensure_traits(["CUSTOM_GOLD", AVX2])
    placement.ensure_traits(["CUSTOM_GOLD"])
    assert placement.set_traits(made.id, ["CUSTOM_GOLD"], made.generation).traits == {"CUSTOM_GOLD"}


@pytest.mark.parametrize("name", ["GOLD", "CUSTOM_gold", "HW_NOBODY_KNOWS"])
def test_only_custom_traits_and_classes_can_be_made(placement: PlacementService, name: str) -> None:
    with pytest.raises(Rejected) as refused:
        placement.ensure_traits([name])
    assert refused.value.code == "trait_unknown"
    with pytest.raises(Rejected) as refused:
        placement.ensure_classes([name])
    assert refused.value.code == "resource_class_unknown"


def test_aggregates_are_replaced_under_the_generation_that_was_read(
    placement: PlacementService,
) -> None:
    made = make(placement, "host-1", aggregates=[new_id()])
    wanted = frozenset({new_id(), new_id()})
    after = placement.set_aggregates(made.id, wanted, made.generation)
    assert after.aggregates == wanted
    assert again(placement, made) == after
    with pytest.raises(Conflict) as moved:
        placement.set_aggregates(made.id, [], made.generation)
    assert moved.value.code == "generation_conflict"


def test_what_is_changed_of_nobody_is_refused(placement: PlacementService) -> None:
    changes = [
        lambda: placement.set_traits(new_id(), [], 0),
        lambda: placement.set_aggregates(new_id(), [], 0),
        lambda: placement.set_inventories(new_id(), {"VCPU": Inventory(1)}, 0),
        lambda: placement.consumers_of(new_id()),
    ]
    for change in changes:
        with pytest.raises(Rejected) as refused:
            change()
        assert refused.value.code == "provider_unknown"


def test_a_provider_that_is_gone_already_may_be_deleted_again(
    placement: PlacementService,
) -> None:
    made = make(placement, "host-1", ROOM, traits=[AVX2], aggregates=[new_id()])
    placement.delete_provider(made.id)
    placement.delete_provider(made.id)
    assert placement.provider(made.id) is None


@pytest.mark.parametrize("name", ["", " host-1", "two\nlines", "\x1b[31mred", "x" * 201])
def test_a_name_that_nobody_could_show_is_refused(placement: PlacementService, name: str) -> None:
    provider_id = new_id()
    with pytest.raises(Rejected) as refused:
        placement.ensure_provider(provider_id, name)
    assert refused.value.code == "provider_name_invalid"
    assert placement.provider(provider_id) is None
    assert placement.ensure_provider(provider_id, "Küche 1/2").name == "Küche 1/2"


def test_a_name_is_free_again_once_its_provider_is_deleted(placement: PlacementService) -> None:
    placement.delete_provider(make(placement, "host-1").id)
    assert placement.ensure_provider(new_id(), "host-1").name == "host-1"


def test_deleting_a_used_provider_is_refused_with_its_consumers(
    placement: PlacementService,
) -> None:
    made = make(placement, "host-1", ROOM)
    users = [held(placement, made, {"VCPU": 1}).id for _ in range(2)]
    with pytest.raises(Rejected) as refused:
        placement.delete_provider(made.id)
    assert refused.value.code == "provider_in_use"
    assert refused.value.data["consumers"] == sorted(users)
    assert placement.provider(made.id) is not None


def test_deleting_a_provider_with_children_is_refused_with_them(
    placement: PlacementService,
) -> None:
    root = make(placement, "host-1")
    child = make(placement, "child", parent=root)
    with pytest.raises(Rejected) as refused:
        placement.delete_provider(root.id)
    assert refused.value.code == "provider_has_children"
    assert refused.value.data["children"] == [child.id]
    placement.delete_provider(child.id)
    placement.delete_provider(root.id)
