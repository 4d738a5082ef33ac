"""The providers of one tree as they were last read, and changes flushed to a placement service."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from conductor.placement.allocations import change
from conductor.placement.ports import PlacementService, ProviderQuery
from conductor.placement.providers import SHARING, parents_first
from conductor.placement.request_groups import TraitRule
from conductor.store import Provider
from models.errors import Broken, ConductorError, Conflict, Rejected, Unreachable

EXPIRES_AFTER_S: Final = 300.0
"""How long traits and aggregates are believed without asking again."""

CUSTOM: Final = "CUSTOM_"

# Whoever hears of several failures does what the worst of them asks for.
_WORST_FIRST: Final = (Broken, Rejected, Unreachable, Conflict)


class ProviderTree:
    """A host's root provider and what is below it, cached; for one thread.

    What is read is believed for `EXPIRES_AFTER_S`, or until a write shows that it is old.
    """

    def __init__(
        self,
        placement: PlacementService,
        root_id: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._placement = placement
        self._root_id = root_id
        self._clock = clock
        self._known: dict[str, Provider] = {}
        self._doubted: set[str] = set()
        self._read_at: float | None = None

    def providers(self) -> list[Provider]:
        """Return the tree, parents before children; empty where its root is not there yet."""
        now = self._clock()
        if self._read_at is None or now - self._read_at > EXPIRES_AFTER_S:
            found = self._placement.providers(ProviderQuery(in_tree=self._root_id))
            self._known = {provider.id: provider for provider in found}
            self._read_at = now
            self._doubted.clear()
        for provider_id in sorted(self._doubted):
            again = self._placement.provider(provider_id)
            if again is not None:
                self._known[provider_id] = again
        self._doubted.clear()
        return parents_first(self._known.values())

    def sharing(self) -> list[Provider]:
        """Return the providers of other trees that share with this one."""
        own = self.providers()
        aggregates = frozenset().union(*(provider.aggregates for provider in own))
        if not aggregates:
            return []
        rule = TraitRule(required=frozenset({SHARING}))
        found = self._placement.providers(ProviderQuery(traits=rule, member_of=(aggregates,)))
        return [provider for provider in found if provider.id not in self._known]

    def refresh(self) -> list[Provider]:
        """Return the tree as it is now, whatever was known of it."""
        self._read_at = None
        return self.providers()

    def ensure(self, provider_id: str, name: str, parent_id: str | None = None) -> Provider:
        """Return the provider of that id, made below `parent_id` if it is not there yet."""
        known = {provider.id: provider for provider in self.providers()}.get(provider_id)
        if known is None:
            known = self._placement.ensure_provider(provider_id, name, parent_id)
            self._known[provider_id] = known
        return known

    def flush(self, wanted: Sequence[Provider]) -> None:
        """Make the tree what is wanted: its providers, their inventories, traits and aggregates.

        Deletes bottom-up, creates top-down, updates bottom-up; what is as wanted is not sent.
        A failure spares all other providers: it is raised at the end, with every other one in
        `failures` (provider id to fault), and makes the next flush read that provider anew.
        """
        known = self.providers()
        flushing = _Flushing()
        kept, there = {provider.id for provider in wanted}, {provider.id for provider in known}
        for provider in reversed(known):
            if provider.id not in kept:
                flushing.attempt(provider.id, partial(self._delete, provider.id))
        for provider in parents_first(wanted):
            if provider.id not in there:
                flushing.attempt(provider.id, partial(self._create, provider))
        for provider in reversed(parents_first(wanted)):
            if provider.id in self._known and provider.id not in flushing.failures:
                flushing.attempt(provider.id, partial(self._update, provider))
        self._doubted.update(flushing.failures)
        flushing.finish()

    def delete(self, consumers: Iterable[str] = ()) -> None:
        """Delete the whole tree, after dropping what these consumers hold of it.

        What they hold elsewhere stays. Raises `Rejected` (`provider_in_use`, with the others'
        ids) before anything is changed, where anybody else holds something.
        """
        named = set(consumers)
        providers = self.refresh()
        users = {
            provider.id: set(self._placement.consumers_of(provider.id)) for provider in providers
        }
        others = sorted(set().union(*users.values()) - named)
        if others:
            message = f"{len(others)} consumers still use {providers[0].name}: {', '.join(others)}"
            raise Rejected("provider_in_use", message, provider=self._root_id, consumers=others)
        self._drop(sorted(set().union(*users.values())), set(users))
        for provider in reversed(providers):
            self._delete(provider.id)

    def _drop(self, consumers: Sequence[str], providers: set[str]) -> None:
        change(
            self._placement,
            consumers,
            lambda held: {
                consumer.id: {
                    name: resources
                    for name, resources in consumer.allocations.items()
                    if name not in providers
                }
                for consumer in held
            },
        )

    def _delete(self, provider_id: str) -> None:
        self._placement.delete_provider(provider_id)
        self._known.pop(provider_id, None)

    def _create(self, wanted: Provider) -> None:
        self._known[wanted.id] = self._placement.ensure_provider(
            wanted.id, wanted.name, wanted.parent_id
        )

    def _update(self, wanted: Provider) -> None:
        have = self._known[wanted.id]
        if wanted.inventories != have.inventories:
            self._placement.ensure_classes(_custom(wanted.inventories))
            have = self._kept(
                self._placement.set_inventories(wanted.id, wanted.inventories, have.generation)
            )
        if wanted.aggregates != have.aggregates:
            have = self._kept(
                self._placement.set_aggregates(wanted.id, wanted.aggregates, have.generation)
            )
        if wanted.traits != have.traits:
            self._placement.ensure_traits(_custom(wanted.traits))
            self._kept(self._placement.set_traits(wanted.id, wanted.traits, have.generation))

    def _kept(self, provider: Provider) -> Provider:
        self._known[provider.id] = provider
        return provider


class _Flushing:
    """Collects what failed, provider by provider."""

    def __init__(self) -> None:
        self.failures: dict[str, ConductorError] = {}

    def attempt(self, provider_id: str, work: Callable[[], None]) -> None:
        """Do the work of one provider, or note why not."""
        try:
            work()
        except ConductorError as error:
            self.failures[provider_id] = error

    def finish(self) -> None:
        """Raise what failed, as the kind of the worst failure."""
        if not self.failures:
            return
        failed: Mapping[str, ConductorError] = self.failures
        kind = next(
            kind for kind in _WORST_FIRST if any(isinstance(e, kind) for e in failed.values())
        )
        reasons = "; ".join(error.message for error in failed.values())
        faults = {name: error.to_json() for name, error in failed.items()}
        message = f"{len(failed)} providers are not as wanted: {reasons}"
        raise kind("tree_not_flushed", message, failures=faults)


def _custom(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(CUSTOM)]
