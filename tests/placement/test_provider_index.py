"""All providers in memory: what changed is followed, and answers are those of the store."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, seed
from hypothesis import strategies as st

from conductor.placement.local.provider_index import ProviderIndex
from conductor.placement.request_groups import CandidateRequest, Candidates, RequestGroup, TraitRule
from conductor.store import Inventory, Provider, Store
from conductor.store.memory.memory_store import MemoryStore
from models.hardware import FrozenMap
from tests.placement.found import host_of, kept, refreshed, ways_of
from tests.placement.oracle import all_ways
from tests.placement.worlds import AGGREGATES, SHARES, provider, random_request, random_world

ALL = 100_000


def asking(**amounts: int) -> CandidateRequest:
    return CandidateRequest((RequestGroup(resources=FrozenMap(amounts)),))


@pytest.fixture
def store() -> Store:
    return MemoryStore()


def hosts_of(found: Candidates) -> list[str]:
    return [found.providers[candidate.root_id].name for candidate in found.found]


def test_hosts_and_providers_are_found_in_the_order_of_their_names(store: Store) -> None:
    kept(store, [provider(number, VCPU=4) for number in (3, 1, 2)])
    found = refreshed(ProviderIndex(), store).candidates(asking(VCPU=2), 10)
    assert hosts_of(found) == ["provider-1", "provider-2", "provider-3"]


def test_a_host_without_a_provider_id_is_in_no_tree(store: Store) -> None:
    with store.begin() as uow:
        uow.hosts.add(replace(host_of(provider(1, VCPU=4)), provider_id=""))
    assert not refreshed(ProviderIndex(), store).candidates(asking(VCPU=2), 10).found


def test_the_limit_is_the_most_that_is_found(store: Store) -> None:
    kept(store, [provider(number, VCPU=4) for number in range(1, 6)])
    provider_index = refreshed(ProviderIndex(), store)
    assert len(provider_index.candidates(asking(VCPU=2), 3).found) == 3
    assert not provider_index.candidates(asking(VCPU=2), 0).found


def test_every_tree_has_its_share_of_the_limit_before_any_has_more(store: Store) -> None:
    roots = [provider(number, VCPU=4) for number in (1, 2)]
    ports = [
        provider(10 * number + at, root, SRIOV_NET_VF=4)
        for number, root in enumerate(roots, 1)
        for at in range(4)
    ]
    kept(store, roots + ports)
    provider_index = refreshed(ProviderIndex(), store)
    assert hosts_of(provider_index.candidates(asking(SRIOV_NET_VF=1), 4)) == [
        *["provider-1"] * 2,
        *["provider-2"] * 2,
    ]
    assert len(provider_index.candidates(asking(SRIOV_NET_VF=1), ALL).found) == 8


def test_what_one_tree_has_not_the_others_make_up_for(store: Store) -> None:
    one, many = provider(1, SRIOV_NET_VF=1), provider(2)
    kept(store, [one, many, *(provider(20 + at, many, SRIOV_NET_VF=4) for at in range(6))])
    provider_index = refreshed(ProviderIndex(), store)
    assert len(provider_index.candidates(asking(SRIOV_NET_VF=1), 6).found) == 6


def test_processes_with_starts_of_their_own_take_different_hosts_first(store: Store) -> None:
    kept(store, [provider(number, VCPU=4) for number in range(1, 5)])
    provider_index = refreshed(ProviderIndex(), store)
    first = [hosts_of(provider_index.candidates(asking(VCPU=2), 1, start))[0] for start in range(5)]
    assert first == ["provider-1", "provider-2", "provider-3", "provider-4", "provider-1"]
    assert len(provider_index.candidates(asking(VCPU=2), 10, 3).found) == 4


def test_a_claim_is_seen_at_the_next_refresh(store: Store) -> None:
    root = provider(1, VCPU=4)
    kept(store, [root])
    provider_index = refreshed(ProviderIndex(), store)
    kept(store, [replace(root, used=FrozenMap({"VCPU": 3}), generation=1)])
    assert provider_index.candidates(asking(VCPU=2), 1).found
    assert not refreshed(provider_index, store).candidates(asking(VCPU=2), 1).found
    kept(store, [replace(root, generation=2)])
    assert refreshed(provider_index, store).candidates(asking(VCPU=2), 1).found


def test_a_provider_that_was_dropped_serves_no_longer(store: Store) -> None:
    root = provider(1, VCPU=4)
    port = provider(2, root, SRIOV_NET_VF=4)
    kept(store, [root, port])
    provider_index = refreshed(ProviderIndex(), store)
    assert provider_index.candidates(asking(SRIOV_NET_VF=1), 1).found
    with store.begin() as uow:
        uow.providers.drop(port.id)
    assert not refreshed(provider_index, store).candidates(asking(SRIOV_NET_VF=1), 1).found
    with store.begin() as uow:
        uow.hosts.drop(root.name)
    assert not refreshed(provider_index, store).candidates(asking(VCPU=1), 1).found


def test_a_child_that_comes_before_its_host_serves_once_that_is_there(store: Store) -> None:
    root = provider(1, VCPU=4)
    kept(store, [provider(2, root, SRIOV_NET_VF=4)])
    provider_index = refreshed(ProviderIndex(), store)
    assert not provider_index.candidates(asking(SRIOV_NET_VF=1), 1).found
    kept(store, [root])
    assert refreshed(provider_index, store).candidates(asking(SRIOV_NET_VF=1, VCPU=1), 1).found


def test_what_two_hosts_share_is_used_up_for_both(store: Store) -> None:
    near = AGGREGATES[:1]
    disk = provider(4, None, [SHARES], near, DISK_GB=10)
    kept(store, [provider(1, None, (), near, VCPU=4), provider(3, None, (), near, VCPU=4), disk])
    provider_index = refreshed(ProviderIndex(), store)
    requested = asking(VCPU=1, DISK_GB=8)
    assert hosts_of(provider_index.candidates(requested, 9)) == ["provider-1", "provider-3"]
    kept(store, [replace(disk, used=FrozenMap({"DISK_GB": 5}), generation=1)])
    assert not refreshed(provider_index, store).candidates(requested, 9).found


def test_shared_storage_alone_is_one_candidate_however_many_hosts_it_serves(store: Store) -> None:
    near = AGGREGATES[:1]
    hosts = [provider(number, None, (), near, VCPU=4) for number in (1, 3, 5)]
    kept(store, [*hosts, provider(4, None, [SHARES], near, DISK_GB=10)])
    found = refreshed(ProviderIndex(), store).candidates(asking(DISK_GB=1), 9).found
    assert [dict(candidate.allocations) for candidate in found] == [
        {provider(4).id: FrozenMap({"DISK_GB": 1})}
    ]


def test_a_tree_that_refused_is_asked_again_once_it_has_changed(store: Store) -> None:
    root = provider(1)
    ports = [provider(2 + at, root, SRIOV_NET_VF=2) for at in range(2)]
    kept(store, [root, *ports])
    three = CandidateRequest(
        tuple(RequestGroup(f"_{at}", FrozenMap({"SRIOV_NET_VF": 2})) for at in range(2)),
        policy="isolate",
    )
    provider_index = refreshed(ProviderIndex(), store)
    kept(store, [replace(ports[0], used=FrozenMap({"SRIOV_NET_VF": 1}), generation=1)])
    for _ in range(2):
        assert not refreshed(provider_index, store).candidates(three, 1).found
    kept(store, [replace(ports[0], generation=2)])
    assert refreshed(provider_index, store).candidates(three, 1).found


def test_providers_that_candidates_name_come_with_them(store: Store) -> None:
    root = provider(1, None, ["CUSTOM_A"])
    port = provider(2, root, SRIOV_NET_VF=2)
    kept(store, [root, port])
    near = RequestGroup("_near", traits=TraitRule(frozenset({"CUSTOM_A"})))
    requested = CandidateRequest(
        (RequestGroup("_1", FrozenMap({"SRIOV_NET_VF": 1})), near),
        same_subtree=(frozenset({"_1", "_near"}),),
    )
    found = refreshed(ProviderIndex(), store).candidates(requested, 1)
    assert set(found.providers) == {root.id, port.id}
    assert found.providers[port.id] == port


@seed(0)
@given(st.integers(0, 10**9))
def test_all_that_can_be_is_found_whatever_has_changed(number: int) -> None:
    chance = random.Random(number)
    store, provider_index = MemoryStore(), ProviderIndex()
    world = random_world(chance, 5)
    kept(store, world)
    for version in range(1, 4):
        refreshed(provider_index, store)
        for _ in range(3):
            request = random_request(chance, world)
            found = provider_index.candidates(request, ALL, chance.randint(0, 5))
            assert ways_of(found.found) == all_ways(world, request)
            some = provider_index.candidates(request, 3)
            assert len(some.found) == min(3, len(found.found))
            assert ways_of(some.found) <= ways_of(found.found)
        world = _changed(chance, store, world, version)


def _changed(
    chance: random.Random, store: Store, world: Sequence[Provider], version: int
) -> list[Provider]:
    """Give some providers other amounts, traits and aggregates; drop one; add a few."""
    newer = {item.name: item for item in random_world(chance, 6)}
    after = []
    gone = chance.choice([*(item for item in world if not _has_children(item, world)), None])
    for item in world:
        other = newer.get(item.name)
        if item is gone:
            with store.begin() as uow:
                assert uow.hosts.drop(item.name) or uow.providers.drop(item.id)
        elif other is not None and chance.random() < 0.5:
            moved = chance.random() < 0.3
            after.append(
                replace(
                    item,
                    generation=version,
                    inventories=other.inventories,
                    used=other.used,
                    traits=other.traits if moved else item.traits,
                    aggregates=other.aggregates if moved else item.aggregates,
                )
            )
        else:
            after.append(item)
    parent = chance.choice([*after, None])
    after.append(provider(10 * version + chance.randint(0, 9), parent, VCPU=3, DISK_GB=4))
    kept(store, after)
    return after


def _has_children(item: Provider, world: Sequence[Provider]) -> bool:
    return any(other.parent_id == item.id for other in world)


def test_a_request_for_a_unit_that_a_single_host_does_not_give_is_refused(store: Store) -> None:
    kept(store, [provider(1, VCPU=Inventory(8, min_unit=2)), provider(2, VCPU=8)])
    found = refreshed(ProviderIndex(), store).candidates(asking(VCPU=1), 9)
    assert hosts_of(found) == ["provider-2"]
