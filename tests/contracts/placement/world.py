"""A few providers and consumers to ask about."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace

from conductor.placement.ports import PlacementService
from conductor.placement.providers import SHARING, Consumer, Resources
from conductor.placement.request_groups import Candidate, CandidateRequest, RequestGroup, TraitRule
from conductor.store import Inventory, Provider

AVX2 = "HW_CPU_X86_AVX2"
SSD = "STORAGE_DISK_SSD"
SRIOV = "HW_NIC_SRIOV"
PROJECT = "project-1"
USER = "user-1"

ROOM = {"VCPU": Inventory(8), "MEMORY_MB": Inventory(4096)}


def new_id() -> str:
    """Return a UUID that nobody else has."""
    return str(uuid.uuid4())


def make(
    placement: PlacementService,
    name: str,
    inventories: Mapping[str, Inventory] | None = None,
    *,
    parent: Provider | None = None,
    traits: Iterable[str] = (),
    aggregates: Iterable[str] = (),
) -> Provider:
    """Make a provider with all that it has."""
    made = placement.ensure_provider(new_id(), name, parent.id if parent else None)
    placement.ensure_classes(n for n in inventories or {} if n.startswith("CUSTOM_"))
    placement.ensure_traits(name for name in traits if name.startswith("CUSTOM_"))
    if inventories:
        made = placement.set_inventories(made.id, inventories, made.generation)
    if traits:
        made = placement.set_traits(made.id, traits, made.generation)
    if aggregates:
        made = placement.set_aggregates(made.id, aggregates, made.generation)
    return made


def shared_storage(placement: PlacementService, aggregate: str, disk_gb: int = 1000) -> Provider:
    """Make a provider of disk for every tree in the aggregate."""
    room = {"DISK_GB": Inventory(disk_gb)}
    return make(placement, "storage", room, traits=[SHARING], aggregates=[aggregate])


def holder(allocations: Mapping[str, Resources], consumer_id: str = "", **fields: str) -> Consumer:
    """Return a consumer that is to hold something and holds nothing yet."""
    owner = {"project_id": PROJECT, "user_id": USER, **fields}
    return Consumer(consumer_id or new_id(), allocations, **owner)


def held(placement: PlacementService, provider: Provider, resources: Resources) -> Consumer:
    """Let a new consumer hold something of a provider, and return it as it is then."""
    consumer = holder({provider.id: resources})
    placement.write([consumer])
    return placement.consumer(consumer.id)


def emptied(consumer: Consumer) -> Consumer:
    """Return the consumer as it is to hold nothing any more."""
    return replace(consumer, allocations={})


def used(placement: PlacementService, provider: Provider) -> dict[str, int]:
    """Return what is in use of a provider now."""
    return dict(again(placement, provider).used)


def again(placement: PlacementService, provider: Provider) -> Provider:
    """Return a provider as it is now."""
    found = placement.provider(provider.id)
    assert found is not None
    return found


def asking(resources: Resources, **fields: object) -> CandidateRequest:
    """Return a request of one group without a suffix."""
    return CandidateRequest((RequestGroup(resources=resources, **fields),))


def needs(*traits: str) -> TraitRule:
    """Return the rule that asks for all of these."""
    return TraitRule(required=frozenset(traits))


def places(
    placement: PlacementService, request: CandidateRequest, limit: int = 100
) -> set[frozenset[tuple[str, tuple[tuple[str, int], ...]]]]:
    """Return the allocations of all candidates, in no order."""
    return {plain(candidate) for candidate in placement.candidates(request, limit).found}


def plain(candidate: Candidate) -> frozenset[tuple[str, tuple[tuple[str, int], ...]]]:
    """Return what a candidate claims, to be compared."""
    return frozenset(
        (provider_id, tuple(sorted(resources.items())))
        for provider_id, resources in candidate.allocations.items()
    )


def of(*parts: tuple[Provider, Resources]) -> frozenset[tuple[str, tuple[tuple[str, int], ...]]]:
    """Return what a candidate of these parts claims."""
    return frozenset((part.id, tuple(sorted(resources.items()))) for part, resources in parts)
