"""Ways to serve a request: what every adapter finds, and nothing else."""

import pytest

from conductor.placement.allocations import allocate
from conductor.placement.ports import PlacementService
from conductor.placement.providers import SHARING
from conductor.placement.request_groups import CandidateRequest, RequestGroup, TraitRule
from conductor.store import Inventory, Provider
from models.errors import Rejected
from tests.contracts.placement.world import (
    AVX2,
    ROOM,
    SRIOV,
    SSD,
    asking,
    held,
    holder,
    make,
    needs,
    new_id,
    of,
    places,
    shared_storage,
    used,
)


def group(suffix: str, resources: dict[str, int], **fields: object) -> RequestGroup:
    return RequestGroup(suffix, resources, **fields)


def numa_host(placement: PlacementService, name: str = "host-1") -> tuple[Provider, ...]:
    """Make a host with memory and two NUMA cells with CPUs, one of which has a NIC below it."""
    root = make(placement, name, {"MEMORY_MB": Inventory(4096)})
    cells = [
        make(placement, f"{name}-numa-{at}", {"VCPU": Inventory(4)}, parent=root) for at in (0, 1)
    ]
    nic = make(placement, f"{name}-nic", {"SRIOV_NET_VF": Inventory(2)}, parent=cells[1])
    return root, *cells, nic


def test_a_fleet_without_room_has_no_candidates(placement: PlacementService) -> None:
    make(placement, "host-1", ROOM)
    found = placement.candidates(asking({"VCPU": 9}), 10)
    assert (found.found, found.providers) == ((), {})


def test_each_host_with_room_for_all_is_a_candidate(placement: PlacementService) -> None:
    one, other = make(placement, "host-1", ROOM), make(placement, "host-2", ROOM)
    full, bare = make(placement, "host-3", ROOM), make(placement, "host-4", {"VCPU": Inventory(8)})
    held(placement, full, {"MEMORY_MB": 4000})
    asked = {"VCPU": 2, "MEMORY_MB": 512}
    assert places(placement, asking(asked)) == {of((one, asked)), of((other, asked))}
    assert bare.inventories


def test_a_candidate_names_its_root_who_serves_which_group_and_what_there_is(
    placement: PlacementService,
) -> None:
    made = make(placement, "host-1", {"VCPU": Inventory(8, 2, 2.0)}, traits=[AVX2])
    held(placement, made, {"VCPU": 3})
    found = placement.candidates(asking({"VCPU": 2}), 10)
    (candidate,) = found.found
    assert candidate.root_id == made.id
    assert candidate.mappings == {"": (made.id,)}
    summary = found.providers[made.id]
    assert (summary.id, summary.root_id, summary.parent_id) == (made.id, made.id, None)
    assert (summary.used, summary.traits) == ({"VCPU": 3}, {AVX2})
    assert summary.inventories["VCPU"].capacity == 12


def test_the_limit_bounds_how_many_are_found(placement: PlacementService) -> None:
    for at in range(5):
        make(placement, f"host-{at}", ROOM)
    assert len(placement.candidates(asking({"VCPU": 1}), 3).found) == 3
    assert len(placement.candidates(asking({"VCPU": 1}), 9).found) == 5


def test_a_candidate_can_be_claimed_as_it_is(placement: PlacementService) -> None:
    root, cell, *_ = numa_host(placement)
    request = CandidateRequest(
        (group("", {"MEMORY_MB": 64}), group("_cpu", {"VCPU": 4})), policy="isolate"
    )
    candidate = next(
        item for item in placement.candidates(request, 10).found if cell.id in item.allocations
    )
    allocate(placement, holder({}), candidate)
    assert (used(placement, root), used(placement, cell)) == ({"MEMORY_MB": 64}, {"VCPU": 4})


@pytest.mark.parametrize("amount", [1, 3, 7])
def test_amounts_against_the_units_of_an_inventory_find_nothing(
    placement: PlacementService, amount: int
) -> None:
    made = make(placement, "host-1", {"VCPU": Inventory(16, 0, 1.0, 2, 6, 2)})
    assert places(placement, asking({"VCPU": amount})) == set()
    assert places(placement, asking({"VCPU": 4})) == {of((made, {"VCPU": 4}))}


@pytest.mark.parametrize(
    ("rule", "names"),
    [
        (needs(AVX2), {"fast", "both"}),
        (needs(AVX2, SSD), {"both"}),
        (TraitRule(forbidden=frozenset({SSD})), {"fast", "plain"}),
        (TraitRule(any_of=(frozenset({AVX2, SSD}),)), {"fast", "both", "ssd"}),
        (TraitRule(any_of=(frozenset({AVX2}), frozenset({SSD, SRIOV}))), {"both"}),
        (TraitRule(frozenset({AVX2}), (), frozenset({AVX2})), set()),
        (TraitRule(any_of=(frozenset({SSD}),), forbidden=frozenset({SSD})), set()),
    ],
)
@pytest.mark.parametrize("asked_of", ["group", "suffixed group", "root"])
def test_traits_are_required_forbidden_or_any_of_several(
    placement: PlacementService, rule: TraitRule, names: set[str], asked_of: str
) -> None:
    hosts = {
        "fast": make(placement, "fast", ROOM, traits=[AVX2]),
        "ssd": make(placement, "ssd", ROOM, traits=[SSD]),
        "both": make(placement, "both", ROOM, traits=[AVX2, SSD]),
        "plain": make(placement, "plain", ROOM),
    }
    request = {
        "group": asking({"VCPU": 1}, traits=rule),
        "suffixed group": CandidateRequest((group("_1", {"VCPU": 1}, traits=rule),)),
        "root": CandidateRequest((group("", {"VCPU": 1}),), root_traits=rule),
    }[asked_of]
    found = [candidate.root_id for candidate in placement.candidates(request, 100).found]
    assert sorted(found) == sorted(hosts[name].id for name in names)


def test_a_request_for_what_nobody_made_is_refused(placement: PlacementService) -> None:
    make(placement, "host-1", ROOM)
    with pytest.raises(Rejected) as refused:
        placement.candidates(asking({"CUSTOM_NOBODY_MADE_ME": 1}), 10)
    assert refused.value.code == "resource_class_unknown"
    with pytest.raises(Rejected) as refused:
        placement.candidates(asking({"VCPU": 1}, traits=needs("CUSTOM_NOBODY_MADE_ME")), 10)
    assert refused.value.code == "trait_unknown"


def test_aggregates_are_asked_for_and_kept_away_from(placement: PlacementService) -> None:
    rack, zone, maintenance = new_id(), new_id(), new_id()
    good = make(placement, "good", ROOM, aggregates=[rack, zone])
    make(placement, "other-zone", ROOM, aggregates=[rack])
    make(placement, "closed", ROOM, aggregates=[rack, zone, maintenance])
    request = asking(
        {"VCPU": 1},
        member_of=(frozenset({rack, new_id()}), frozenset({zone})),
        not_member_of=frozenset({maintenance}),
    )
    assert places(placement, request) == {of((good, {"VCPU": 1}))}


def test_a_request_may_name_the_only_tree_by_any_of_its_members(
    placement: PlacementService,
) -> None:
    root, *cells, _ = numa_host(placement)
    numa_host(placement, "host-2")
    for member in (root, cells[0]):
        found = places(placement, asking({"VCPU": 1}, in_tree=member.id))
        assert found == {of((cell, {"VCPU": 1})) for cell in cells}
    assert places(placement, asking({"VCPU": 1}, in_tree=new_id())) == set()


def test_classes_of_the_group_without_a_suffix_come_from_anywhere_in_the_tree(
    placement: PlacementService,
) -> None:
    root, *cells, _ = numa_host(placement)
    found = places(placement, asking({"MEMORY_MB": 64, "VCPU": 2}))
    assert found == {of((root, {"MEMORY_MB": 64}), (cell, {"VCPU": 2})) for cell in cells}


def test_a_class_is_never_split_over_providers(placement: PlacementService) -> None:
    numa_host(placement)
    assert places(placement, asking({"VCPU": 5})) == set()


def test_a_group_with_a_suffix_is_served_by_one_provider(placement: PlacementService) -> None:
    numa_host(placement)
    both = make(placement, "flat", {"MEMORY_MB": Inventory(512), "VCPU": Inventory(4)})
    request = CandidateRequest((group("_all", {"MEMORY_MB": 64, "VCPU": 2}),))
    assert places(placement, request) == {of((both, {"MEMORY_MB": 64, "VCPU": 2}))}


def test_groups_may_share_a_provider_unless_they_are_isolated(
    placement: PlacementService,
) -> None:
    _, one, other, _ = numa_host(placement)
    groups = (group("_a", {"VCPU": 2}), group("_b", {"VCPU": 1}))
    apart = {
        of((one, {"VCPU": 2}), (other, {"VCPU": 1})),
        of((one, {"VCPU": 1}), (other, {"VCPU": 2})),
    }
    together = {of((one, {"VCPU": 3})), of((other, {"VCPU": 3}))}
    assert places(placement, CandidateRequest(groups, "isolate")) == apart
    assert places(placement, CandidateRequest(groups, "none")) == apart | together


def test_groups_on_one_provider_are_limited_together(placement: PlacementService) -> None:
    _, one, other, _ = numa_host(placement)
    groups = (group("_a", {"VCPU": 3}), group("_b", {"VCPU": 3}))
    apart = {of((one, {"VCPU": 3}), (other, {"VCPU": 3}))}
    assert places(placement, CandidateRequest(groups, "none")) == apart


def test_mappings_say_which_provider_serves_which_group(placement: PlacementService) -> None:
    root, *cells, nic = numa_host(placement)
    cpu, net = group("_cpu", {"VCPU": 1}), group("_net", {"SRIOV_NET_VF": 1})
    request = CandidateRequest((group("", {"MEMORY_MB": 64}), cpu, net))
    found = placement.candidates(request, 10).found
    assert {candidate.mappings["_cpu"] for candidate in found} == {(cell.id,) for cell in cells}
    assert all(candidate.mappings[""] == (root.id,) for candidate in found)
    assert all(candidate.mappings["_net"] == (nic.id,) for candidate in found)


def test_groups_of_one_subtree_are_at_or_below_one_of_their_providers(
    placement: PlacementService,
) -> None:
    _, _, near, nic = numa_host(placement)
    groups = (group("_cpu", {"VCPU": 1}), group("_net", {"SRIOV_NET_VF": 1}))
    request = CandidateRequest(groups, same_subtree=(frozenset({"_cpu", "_net"}),))
    assert places(placement, request) == {of((near, {"VCPU": 1}), (nic, {"SRIOV_NET_VF": 1}))}


def test_a_group_without_resources_places_its_traits_for_a_subtree(
    placement: PlacementService,
) -> None:
    root = make(placement, "host-1", {"MEMORY_MB": Inventory(512)})
    wanted = None
    for at, traits in enumerate(([], [AVX2])):
        cell = make(placement, f"cell-{at}", parent=root, traits=traits)
        cpus = make(placement, f"cpus-{at}", {"VCPU": Inventory(4)}, parent=cell)
        wanted = cpus if traits else wanted
    groups = (group("_cell", {}, traits=needs(AVX2)), group("_cpu", {"VCPU": 1}))
    request = CandidateRequest(groups, same_subtree=(frozenset({"_cell", "_cpu"}),))
    assert wanted is not None
    assert places(placement, request) == {of((wanted, {"VCPU": 1}))}


def test_a_sharing_provider_serves_the_trees_of_its_aggregate(
    placement: PlacementService,
) -> None:
    aggregate = new_id()
    near = make(placement, "near", ROOM, aggregates=[aggregate])
    make(placement, "far", ROOM)
    storage = shared_storage(placement, aggregate)
    found = placement.candidates(asking({"VCPU": 1, "DISK_GB": 10}), 10)
    (candidate,) = found.found
    assert candidate.allocations == {near.id: {"VCPU": 1}, storage.id: {"DISK_GB": 10}}
    assert candidate.root_id == near.id
    assert set(candidate.mappings[""]) == {near.id, storage.id}
    assert found.providers[storage.id].traits == {SHARING}


def test_a_host_with_disk_of_its_own_may_use_either(placement: PlacementService) -> None:
    aggregate = new_id()
    room = {"VCPU": Inventory(8), "DISK_GB": Inventory(100)}
    host = make(placement, "host-1", room, aggregates=[aggregate])
    storage = shared_storage(placement, aggregate)
    assert places(placement, asking({"VCPU": 1, "DISK_GB": 10})) == {
        of((host, {"VCPU": 1, "DISK_GB": 10})),
        of((host, {"VCPU": 1}), (storage, {"DISK_GB": 10})),
    }
