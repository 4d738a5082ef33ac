"""Random trees and requests: our candidates are those of an OpenStack Placement server.

Where the server (16.0.0) contradicts itself, it is no measure; what is left out here, and no more:

- With `isolate`, where the group without a suffix and another take of one class, amounts of one
  candidate show up in others (the same trees have the right sums under `none`).
- A group without a suffix that is served by sharing providers alone is found together with one
  of the trees that they serve, or none; given a suffix, the same group is found with all.
- Below its root, a sharing provider makes the server lose ways within its own tree, or fail (500).
"""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from conductor.placement.http.http_placement import HttpPlacement
from conductor.placement.providers import Consumer
from conductor.placement.request_groups import UNNUMBERED, CandidateRequest
from conductor.store import Inventory, Provider
from models.hardware import FrozenMap
from tests.placement.found import Way, grown, ways_of
from tests.placement.worlds import SHARES, provider_id, random_request, random_world

ALL = 100_000
REQUESTS = 8
CONSUMER = provider_id(10**6)
PLENTY = Inventory(100)


@pytest.mark.parametrize("number", range(20))
def test_candidates_are_those_of_the_server(number: int, http_placement: HttpPlacement) -> None:
    chance = random.Random(number)
    world = _comparable_world(random_world(chance))
    _load(http_placement, world)
    provider_index = grown(world)
    for _ in range(REQUESTS):
        request = _comparable_request(random_request(chance, world))
        ours = ways_of(provider_index.candidates(request, ALL).found)
        theirs = ways_of(http_placement.candidates(request, ALL).found)
        assert theirs <= ours
        lost = ours - theirs
        assert all(_is_lent_apart(way, request, world) for way in lost)


def _comparable_world(world: Sequence[Provider]) -> list[Provider]:
    return [
        provider
        if provider.parent_id is None
        else replace(provider, traits=provider.traits - {SHARES})
        for provider in world
    ]


def _comparable_request(request: CandidateRequest) -> CandidateRequest:
    loose = {name for group in request.groups if not group.suffix for name in group.resources}
    others = {name for group in request.groups if group.suffix for name in group.resources}
    return replace(request, policy="none") if loose & others else request


def _is_lent_apart(way: Way, request: CandidateRequest, world: Sequence[Provider]) -> bool:
    """Say whether all of the group without a suffix, and nothing else, comes from elsewhere."""
    _, mappings = way
    roots = {provider.id: provider.root_id for provider in world}
    sharing = {provider.id for provider in world if SHARES in provider.traits}
    served = dict(mappings)
    loose = served.get(UNNUMBERED, frozenset())
    others = frozenset().union(*(ids for suffix, ids in served.items() if suffix != UNNUMBERED))
    return bool(loose) and loose <= sharing and bool({roots[other] for other in others})


def _load(placement: HttpPlacement, world: Sequence[Provider]) -> None:
    names = {name for provider in world for name in provider.traits if name.startswith("CUSTOM_")}
    placement.ensure_traits({*names, "CUSTOM_A", "CUSTOM_B"})
    held = {provider.id: provider.used for provider in world if provider.used}
    for provider in world:
        made = placement.ensure_provider(provider.id, provider.name, provider.parent_id)
        made = placement.set_traits(provider.id, provider.traits, made.generation)
        made = placement.set_aggregates(provider.id, provider.aggregates, made.generation)
        # More may be in use than a provider has by now: that much has to be there first.
        first = (
            dict.fromkeys(provider.inventories, PLENTY) if provider.used else provider.inventories
        )
        placement.set_inventories(provider.id, first, made.generation)
    if held:
        placement.write([Consumer(CONSUMER, FrozenMap(held), "project", "user")])
    for provider in world:
        known = placement.provider(provider.id)
        if provider.used and known is not None:
            placement.set_inventories(provider.id, provider.inventories, known.generation)
