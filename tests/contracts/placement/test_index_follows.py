"""A provider index follows every store: what comes, changes and goes is seen at the next look."""

from dataclasses import replace

import pytest

from conductor.placement.local.provider_index import ProviderIndex
from conductor.placement.request_groups import CandidateRequest, RequestGroup
from conductor.store import Store
from models.hardware import FrozenMap
from tests.contracts.placement.conftest import STORES
from tests.placement.found import kept, refreshed
from tests.placement.worlds import provider

PORT = CandidateRequest((RequestGroup(resources=FrozenMap({"SRIOV_NET_VF": 2})),))
ROOTS = [provider(number, VCPU=8) for number in (1, 3)]
PORTS = [provider(10 + at, root, SRIOV_NET_VF=2) for at, root in enumerate(ROOTS)]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue(f"{request.param}_store")
    return found


def names_of(provider_index: ProviderIndex) -> list[str]:
    found = provider_index.candidates(PORT, 10)
    return [
        found.providers[allocation].name for way in found.found for allocation in way.allocations
    ]


def test_an_index_sees_what_was_there_before_it(store: Store) -> None:
    kept(store, [*ROOTS, *PORTS])
    assert names_of(refreshed(ProviderIndex(), store)) == ["provider-10", "provider-11"]


def test_what_comes_later_is_seen(store: Store) -> None:
    kept(store, [*ROOTS, PORTS[0]])
    provider_index = refreshed(ProviderIndex(), store)
    kept(store, [PORTS[1]])
    assert names_of(refreshed(provider_index, store)) == ["provider-10", "provider-11"]


def test_what_is_used_up_and_given_back_is_seen(store: Store) -> None:
    kept(store, [*ROOTS, *PORTS])
    provider_index = refreshed(ProviderIndex(), store)
    kept(store, [replace(PORTS[0], used=FrozenMap({"SRIOV_NET_VF": 1}), generation=1)])
    assert names_of(refreshed(provider_index, store)) == ["provider-11"]
    kept(store, [replace(PORTS[0], generation=2)])
    assert names_of(refreshed(provider_index, store)) == ["provider-10", "provider-11"]


def test_what_is_dropped_is_seen_also_where_as_many_come(store: Store) -> None:
    kept(store, [*ROOTS, PORTS[0]])
    provider_index = refreshed(ProviderIndex(), store)
    with store.begin() as uow:
        uow.providers.drop(PORTS[0].id)
        uow.providers.add(PORTS[1])
    assert names_of(refreshed(provider_index, store)) == ["provider-11"]
    with store.begin() as uow:
        uow.hosts.drop(ROOTS[1].name)
    assert not names_of(refreshed(provider_index, store))
