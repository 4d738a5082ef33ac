"""Resource providers and what consumers hold of them, as values (frozen, JSON-free)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from conductor.store import Host, Inventory, Provider, nothing
from models.hardware import FrozenMap

SHARING: Final = "MISC_SHARES_VIA_AGGREGATE"
"""The trait of a provider that serves every tree with a member in one of its aggregates."""

INSTANCE: Final = "instance"
MIGRATION: Final = "migration"

OF_THE_SERVER: Final = (
    "placement_credentials",
    "placement_too_old",
    "placement_url_invalid",
)
"""Codes of refusals by a Placement server that are about no provider, but about us or itself."""

Resources = Mapping[str, int]
"""Amounts by resource class, all greater than 0."""

ProviderAmounts = Mapping[str, Resources]
"""Amounts by provider id and resource class."""


def root_of(host: Host) -> Provider:
    """Return a host as the root of its tree of providers."""
    return Provider(
        id=host.provider_id,
        name=host.name,
        root_id=host.provider_id,
        generation=host.version,
        inventories=host.inventory,
        used=host.used,
        traits=frozenset(host.traits),
        aggregates=frozenset(host.aggregates),
    )


def parents_first(providers: Iterable[Provider]) -> list[Provider]:
    """Return the providers by depth, then by name; a parent that is not among them is none."""
    known = {provider.id: provider for provider in providers}

    def depth(provider: Provider) -> int:
        parent = known.get(provider.parent_id or "")
        return 0 if parent is None else 1 + depth(parent)

    return sorted(known.values(), key=lambda provider: (depth(provider), provider.name))


def larger_amounts(one: Resources, other: Resources) -> Resources:
    """Return of each class the larger of both amounts."""
    names = one.keys() | other.keys()
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in sorted(names)}


def over_committed(provider: Provider) -> Resources:
    """Return by how much each class is used beyond what can be claimed; empty where none is."""
    beyond = {
        name: used - (inventory.capacity if (inventory := provider.inventories.get(name)) else 0)
        for name, used in provider.used.items()
    }
    return FrozenMap({name: amount for name, amount in beyond.items() if amount > 0})


@dataclass(frozen=True, slots=True)
class Consumer:
    """What one consumer holds: `{provider id: {class: amount}}`; empty where it holds nothing.

    `generation` is opaque: who writes under the one it read overwrites nobody. It is None for a
    consumer that holds nothing. `kind` is `instance`, `migration` or another lower case word.
    """

    id: str
    allocations: Mapping[str, Resources] = field(default_factory=nothing)
    project_id: str = ""
    user_id: str = ""
    kind: str = INSTANCE
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class Reshaping:
    """What one provider has after a reshape, under the generation that was read."""

    provider_id: str
    inventories: Mapping[str, Inventory]
    generation: int


def provider_id_of(host: str) -> str:
    """Return the id of the root provider of a compute host (UUID 5 of its name).

    Every process can compute it, so two that greet a host at once make one provider.
    """
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"conductor:host:{host}"))
