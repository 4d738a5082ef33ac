"""Which ways there are to serve a request from one tree: one sentence for each rule."""

import random
from collections.abc import Iterable, Sequence
from itertools import islice

import pytest
from hypothesis import given, seed
from hypothesis import strategies as st

from conductor.placement.candidates.candidate_search import Tree, candidates, is_sharing, serves
from conductor.placement.request_groups import (
    UNNUMBERED,
    Candidate,
    CandidateRequest,
    GroupPolicy,
    RequestGroup,
    TraitRule,
)
from conductor.store import Inventory, Provider
from models.hardware import FrozenMap
from tests.placement.found import ways_of
from tests.placement.oracle import all_ways
from tests.placement.worlds import AGGREGATES, SHARES, provider, random_request, random_world

NEAR, FAR = AGGREGATES[:2]

ROOT = provider(1, None, ["CUSTOM_ROOT"], [NEAR], VCPU=8, MEMORY_MB=64)
LEFT = provider(2, ROOT, ["CUSTOM_A"], SRIOV_NET_VF=2)
RIGHT = provider(3, ROOT, ["CUSTOM_B"], [FAR], SRIOV_NET_VF=4)
DISK = provider(9, None, [SHARES], [NEAR], DISK_GB=100)
TREE = Tree((ROOT, LEFT, RIGHT), (DISK,))


def group(suffix: str = UNNUMBERED, /, **amounts: int) -> RequestGroup:
    return RequestGroup(suffix, FrozenMap(amounts))


def requested(
    *groups: RequestGroup,
    policy: GroupPolicy = "none",
    near: Iterable[str] = (),
    root: TraitRule | None = None,
) -> CandidateRequest:
    subtrees = (frozenset(near),) if near else ()
    return CandidateRequest(groups, policy, subtrees, root or TraitRule())


def having(
    request_group: RequestGroup,
    *required: str,
    any_of: Iterable[str] = (),
    forbidden: Iterable[str] = (),
) -> RequestGroup:
    one_of = (frozenset(any_of),) if any_of else ()
    rule = TraitRule(frozenset(required), one_of, frozenset(forbidden))
    return RequestGroup(request_group.suffix, request_group.resources, rule)


def found(request: CandidateRequest, tree: Tree = TREE) -> list[Candidate]:
    return list(candidates(tree, request))


def served_by(request: CandidateRequest, suffix: str = UNNUMBERED, tree: Tree = TREE) -> list[str]:
    """Return the numbers of the providers that serve a group, by candidate."""
    ways = (candidate.mappings[suffix] for candidate in candidates(tree, request))
    return sorted("+".join(name[-1] for name in served) for served in ways)


def test_each_class_comes_whole_from_any_provider_of_the_tree_or_who_shares_with_it() -> None:
    request = requested(group(VCPU=2, SRIOV_NET_VF=1, DISK_GB=10))
    assert served_by(request) == ["1+2+9", "1+3+9"]
    first = found(request)[0]
    assert first.allocations == {
        ROOT.id: {"VCPU": 2},
        LEFT.id: {"SRIOV_NET_VF": 1},
        DISK.id: {"DISK_GB": 10},
    }
    assert first.root_id == ROOT.id


def test_a_class_is_never_split_over_providers() -> None:
    assert not found(requested(group(SRIOV_NET_VF=5)))


def test_required_traits_are_met_by_the_providers_used_together() -> None:
    together = having(group(VCPU=1, SRIOV_NET_VF=1), "CUSTOM_ROOT", "CUSTOM_A")
    assert served_by(requested(together)) == ["1+2"]


def test_a_trait_of_a_provider_that_is_not_used_meets_nothing() -> None:
    assert not found(requested(having(group(SRIOV_NET_VF=1), "CUSTOM_ROOT")))


def test_a_forbidden_trait_excludes_the_providers_that_have_it_and_no_others() -> None:
    without = having(group(SRIOV_NET_VF=1), forbidden=["CUSTOM_A", "CUSTOM_ROOT"])
    assert served_by(requested(without)) == ["3"]


def test_one_of_any_of_is_enough() -> None:
    either = having(group(SRIOV_NET_VF=1), any_of=["CUSTOM_A", "CUSTOM_ROOT"])
    assert served_by(requested(either)) == ["2"]


def test_a_group_with_a_suffix_has_one_provider_for_all_its_classes_and_traits() -> None:
    assert served_by(requested(group("_1", VCPU=1, MEMORY_MB=8)), "_1") == ["1"]
    assert not found(requested(group("_1", VCPU=1, SRIOV_NET_VF=1)))
    assert not found(requested(having(group("_1", SRIOV_NET_VF=1), "CUSTOM_A", "CUSTOM_B")))


def test_groups_may_share_a_provider_under_none_and_not_under_isolate() -> None:
    pair = group("_1", SRIOV_NET_VF=1), group("_2", SRIOV_NET_VF=1)
    assert served_by(requested(*pair), "_1") == ["2", "2", "3", "3"]
    apart = found(requested(*pair, policy="isolate"))
    assert [candidate.mappings["_1"] != candidate.mappings["_2"] for candidate in apart] == [
        True,
        True,
    ]


def test_the_group_without_a_suffix_may_share_with_any_under_isolate() -> None:
    assert found(requested(group(VCPU=1), group("_1", VCPU=1), policy="isolate"))


def test_what_lands_on_one_provider_is_charged_together() -> None:
    request = requested(group(VCPU=2), group("_1", VCPU=3))
    assert [candidate.allocations for candidate in found(request)] == [{ROOT.id: {"VCPU": 5}}]
    assert not found(requested(group(VCPU=5), group("_1", VCPU=4)))


@pytest.mark.parametrize(
    ("inventory", "fine", "wrong"),
    [
        (Inventory(8), (4, 4), (4, 5)),
        (Inventory(8, reserved=2), (3, 3), (3, 4)),
        (Inventory(8, max_unit=4), (2, 2), (2, 3)),
        (Inventory(8, min_unit=3), (3, 3), (2, 2)),
        (Inventory(8, step_size=2), (2, 2), (1, 1)),
    ],
)
def test_units_and_steps_are_asked_of_each_group_and_the_largest_unit_of_their_sum(
    inventory: Inventory, fine: tuple[int, int], wrong: tuple[int, int]
) -> None:
    tree = Tree((provider(1, VCPU=inventory),))
    for pair, is_fine in ((fine, True), (wrong, False)):
        groups = [group(f"_{at}", VCPU=amount) for at, amount in enumerate(pair)]
        assert bool(found(requested(*groups), tree)) is is_fine


def test_capacity_is_exact_in_decimal() -> None:
    """Where a ratio has no exact binary form, a server counts one less: 114 of these 115."""
    tree = Tree((provider(1, VCPU=Inventory(100, ratio=1.15)),))
    assert found(requested(group(VCPU=115)), tree)
    assert not found(requested(group(VCPU=116)), tree)


def test_aggregates_of_the_root_count_for_all_its_tree_without_a_suffix_only() -> None:
    loose = RequestGroup(resources={"SRIOV_NET_VF": 1}, member_of=(frozenset({NEAR}),))
    numbered = RequestGroup("_1", {"SRIOV_NET_VF": 1}, member_of=(frozenset({NEAR}),))
    assert served_by(requested(loose)) == ["2", "3"]
    assert not found(requested(numbered))


def test_one_aggregate_of_each_set_is_asked_for() -> None:
    both = RequestGroup("_1", {"SRIOV_NET_VF": 1}, member_of=(frozenset({NEAR}), frozenset({FAR})))
    either = RequestGroup("_1", {"SRIOV_NET_VF": 1}, member_of=(frozenset({NEAR, FAR}),))
    assert not found(requested(both))
    assert served_by(requested(either), "_1") == ["3"]


def test_aggregates_to_stay_out_of_exclude_their_members_and_the_trees_of_roots() -> None:
    outside = RequestGroup(resources={"SRIOV_NET_VF": 1}, not_member_of=frozenset({FAR}))
    far_from_root = RequestGroup(resources={"SRIOV_NET_VF": 1}, not_member_of=frozenset({NEAR}))
    assert served_by(requested(outside)) == ["2"]
    assert not found(requested(far_from_root))


def test_in_tree_excludes_providers_that_share_from_elsewhere() -> None:
    here = RequestGroup(resources={"VCPU": 1, "DISK_GB": 1}, in_tree=RIGHT.id)
    there = RequestGroup("_1", {"DISK_GB": 1}, in_tree=DISK.id)
    assert not found(requested(here))
    assert served_by(requested(group(VCPU=1), there), "_1") == ["9"]


def test_the_root_has_rules_of_its_own() -> None:
    request = group(SRIOV_NET_VF=4)
    assert found(requested(request, root=TraitRule(frozenset({"CUSTOM_ROOT"}))))
    assert not found(requested(request, root=TraitRule(frozenset({"CUSTOM_A"}))))
    assert not found(requested(request, root=TraitRule(forbidden=frozenset({"CUSTOM_ROOT"}))))


def test_of_groups_in_one_subtree_one_sits_above_all_others() -> None:
    inner = provider(4, LEFT, SRIOV_NET_VF=1)
    tree = Tree((ROOT, LEFT, RIGHT, inner))
    pair = group("_1", SRIOV_NET_VF=1), group("_2", SRIOV_NET_VF=1)
    ways = found(requested(*pair, policy="isolate", near=["_1", "_2"]), tree)
    assert {frozenset(way.allocations) for way in ways} == {frozenset({LEFT.id, inner.id})}


def test_a_group_without_resources_places_its_traits_and_takes_nothing() -> None:
    above = RequestGroup("_above", traits=TraitRule(frozenset({"CUSTOM_ROOT"})))
    ways = found(requested(group("_1", SRIOV_NET_VF=4), above, near=["_1", "_above"]))
    assert [(way.allocations, way.mappings["_above"]) for way in ways] == [
        ({RIGHT.id: {"SRIOV_NET_VF": 4}}, (ROOT.id,))
    ]


def test_a_group_without_resources_is_apart_from_others_too_under_isolate() -> None:
    above = RequestGroup("_above", traits=TraitRule(frozenset({"CUSTOM_ROOT"})))
    pair = group("_1", VCPU=1), above
    assert found(requested(*pair, near=["_1", "_above"]))
    assert not found(requested(*pair, near=["_1", "_above"], policy="isolate"))


def test_no_sharing_provider_is_below_a_root_that_it_serves() -> None:
    pair = group("_1", VCPU=1), group("_2", DISK_GB=1)
    assert found(requested(*pair))
    assert not found(requested(*pair, near=["_1", "_2"]))


def test_a_request_for_nothing_has_no_candidates() -> None:
    assert not found(requested())
    assert not found(requested(RequestGroup(traits=TraitRule(frozenset({"CUSTOM_ROOT"})))))


def test_a_few_of_very_many_ways_cost_a_few() -> None:
    ports = [provider(2 + at, ROOT, SRIOV_NET_VF=40) for at in range(40)]
    groups = [group(f"_{at}", SRIOV_NET_VF=1) for at in range(40)]
    some = list(islice(candidates(Tree((ROOT, *ports)), requested(*groups, policy="isolate")), 5))
    assert len({candidate.mappings for candidate in some}) == 5


@seed(0)
@given(st.integers(0, 10**9))
def test_the_ways_are_all_that_there_are(number: int) -> None:
    chance = random.Random(number)
    world = random_world(chance)
    request = random_request(chance, world)
    ways = set()
    for tree in _trees(world):
        in_roots = _with_roots(request, world)
        here = tuple(candidates(tree, in_roots))
        ways |= ways_of(here)
    assert ways == all_ways(world, request)


def _trees(world: Sequence[Provider]) -> Iterable[Tree]:
    roots = {item.id: item for item in world if item.parent_id is None}
    for root in roots:
        own = tuple(item for item in world if item.root_id == root)
        sharing = (item for item in world if item not in own and is_sharing(item))
        yield Tree(own, tuple(item for item in sharing if serves(item, own)), roots)


def _with_roots(request: CandidateRequest, world: Sequence[Provider]) -> CandidateRequest:
    """Return the request with trees named by their roots, which a tree knows of all."""
    roots = {item.id: item.root_id for item in world}
    groups = tuple(
        RequestGroup(
            request_group.suffix,
            request_group.resources,
            request_group.traits,
            request_group.member_of,
            request_group.not_member_of,
            roots.get(request_group.in_tree or ""),
        )
        for request_group in request.groups
    )
    return CandidateRequest(groups, request.policy, request.same_subtree, request.root_traits)
