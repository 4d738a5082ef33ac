"""The port of a placement service: our own tables, or an OpenStack Placement server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from conductor.placement.providers import Consumer, Reshaping, Resources
from conductor.placement.request_groups import CandidateRequest, Candidates, TraitRule
from conductor.store import Inventory, Provider


@dataclass(frozen=True, slots=True)
class ProviderQuery:
    """A query for providers; every field that is set must hold."""

    name: str | None = None
    in_tree: str | None = None
    traits: TraitRule = field(default_factory=TraitRule)
    member_of: tuple[frozenset[str], ...] = ()


class PlacementService(Protocol):
    """Providers in trees, their inventories, and the allocations of consumers.

    Errors, the same from every adapter: `Conflict` (`generation_conflict`) when somebody wrote
    since the generation given was read; `NoValidHost` (`no_capacity`, naming provider, class,
    need and have) when a claim does not fit; `Rejected` for what cannot be (`provider_unknown`,
    `provider_name_taken`, `provider_in_use` with its consumers, `provider_has_children`,
    `inventory_in_use` with its classes, `resource_class_unknown`, `trait_unknown`,
    `inventory_invalid`, `allocation_invalid`); `Unreachable` when the outcome is unknown.
    """

    def provider(self, provider_id: str) -> Provider | None:
        """Return a provider, or nothing."""

    def providers(self, query: ProviderQuery) -> list[Provider]:
        """Return the providers that match the query, parents before children."""

    def ensure_provider(
        self, provider_id: str, name: str, parent_id: str | None = None
    ) -> Provider:
        """Return the provider of that id, made if it is not there yet; a lost race adopts it."""

    def delete_provider(self, provider_id: str) -> None:
        """Delete a provider that nobody uses and that has no children; gone already is fine."""

    def set_inventories(
        self, provider_id: str, inventories: Mapping[str, Inventory], generation: int
    ) -> Provider:
        """Replace the inventories; less than is in use is accepted, none of it is refused."""

    def set_traits(self, provider_id: str, traits: Iterable[str], generation: int) -> Provider:
        """Replace a provider's traits; each must be a standard one or ensured."""

    def set_aggregates(
        self, provider_id: str, aggregates: Iterable[str], generation: int
    ) -> Provider:
        """Replace the aggregates (UUIDs) that a provider is in."""

    def ensure_classes(self, names: Iterable[str]) -> None:
        """Make the custom resource classes that are not there yet (`CUSTOM_…`)."""

    def ensure_traits(self, names: Iterable[str]) -> None:
        """Make the custom traits that are not there yet (`CUSTOM_…`)."""

    def candidates(self, request: CandidateRequest, limit: int) -> Candidates:
        """Return up to `limit` ways to serve the request; the limit bounds the work too."""

    def consumer(self, consumer_id: str) -> Consumer:
        """Return a consumer with its allocations."""

    def consumers_of(self, provider_id: str) -> Mapping[str, Resources]:
        """Return the allocations of one provider, by consumer id."""

    def write(self, consumers: Sequence[Consumer]) -> None:
        """Replace the allocations of these consumers, all or none, under their generations."""

    def reshape(self, shapes: Sequence[Reshaping], consumers: Sequence[Consumer]) -> None:
        """Replace inventories and allocations of them atomically."""

    def usages(self, project_id: str, user_id: str | None = None) -> Resources:
        """Return the sum of a project's, or one of its users', allocations, by class."""
