"""The placement port over our own tables, in the transaction of whoever calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Final

from typing_extensions import override

from conductor.placement.allocation_rows import (
    Turnover,
    allocations_of,
    consumer_of,
    generation_of,
    settled,
    turnover,
)
from conductor.placement.local.provider_index import ProviderIndex
from conductor.placement.local.provider_rows import ProviderRows
from conductor.placement.ports import PlacementService, ProviderQuery
from conductor.placement.providers import Consumer, Reshaping, Resources, parents_first
from conductor.placement.request_groups import CandidateRequest, Candidates
from conductor.placement.resource_names import CLASSES, TRAITS
from conductor.placement.validation import check_inventories, check_name, checked
from conductor.store import Allocation, Inventory, Provider, UnitOfWork
from models.errors import Conflict, Rejected
from models.hardware import FrozenMap

_SHOWN: Final = 3


class StorePlacement(PlacementService):
    """Placement in one unit of work: what it writes is committed, or not, with everything else.

    A host is the root provider of its tree: to write its inventories, traits, aggregates or use
    is to write the host's row, one version later. What a host has pinned is not looked at:
    whoever places by NUMA cell claims with `host_claims`. With a provider index
    that lives longer than this, candidates are found without reading all providers again.
    """

    def __init__(self, uow: UnitOfWork, provider_index: ProviderIndex | None = None) -> None:
        self._uow = uow
        self._rows = ProviderRows(uow)
        self._index = ProviderIndex() if provider_index is None else provider_index

    @override
    def provider(self, provider_id: str) -> Provider | None:
        return self._rows.get(provider_id)

    @override
    def providers(self, query: ProviderQuery) -> list[Provider]:
        found = self._named_by(query)
        carried = frozenset[str]().union(*(provider.traits for provider in found))
        TRAITS.check(self._uow, query.traits.names, carried)
        return parents_first(
            provider
            for provider in found
            if query.traits.met_by(provider.traits)
            and all(provider.aggregates & one_of for one_of in query.member_of)
        )

    def _named_by(self, query: ProviderQuery) -> list[Provider]:
        """Return the providers of the name and in the tree that the query names."""
        if query.in_tree is not None:
            within = self._rows.get(query.in_tree)
            found = [] if within is None else self._rows.tree(within.root_id)
            return [provider for provider in found if query.name in (None, provider.name)]
        return self._rows.all() if query.name is None else self._rows.named([query.name])

    @override
    def ensure_provider(
        self, provider_id: str, name: str, parent_id: str | None = None
    ) -> Provider:
        known = self._rows.get(provider_id)
        if known is not None:
            return known
        check_name(name)
        made = Provider(provider_id, name, parent_id, self._root_for(provider_id, parent_id))
        if not self._rows.named([name]) and self._rows.add(made):
            return made
        known = self._rows.get(provider_id)
        if known is None:
            owner = ", ".join(row.id for row in self._rows.named([name]))
            message = f"name is {name!r}: it belongs to provider {owner}, not to {provider_id}"
            data = {"name": name, "provider": provider_id, "owner": owner}
            raise Rejected("provider_name_taken", message, key="name", **data)
        return known

    def _root_for(self, provider_id: str, parent_id: str | None) -> str:
        if parent_id is None:
            return provider_id
        # Locked, or it might be deleted before the child is there to forbid it.
        (parent,) = self._rows.lock([self._rows.must_get(parent_id)]).values()
        return parent.root_id

    @override
    def delete_provider(self, provider_id: str) -> None:
        found = self._rows.get(provider_id)
        if found is None:
            return
        if self._rows.is_host(found):
            message = f"{found.name} is a compute host: it goes with its service (hosts delete)"
            raise Rejected("host_is_provider", message, provider=provider_id)
        # Locked before anybody is looked for: who claims of it, or hangs a child on it, waits.
        self._rows.lock([found])
        children = sorted(
            provider.id for provider in self._uow.providers.where(parent_id=provider_id)
        )
        if children:
            message = f"{found.name} has {len(children)} children: delete them first"
            raise Rejected(
                "provider_has_children", message, provider=provider_id, children=children
            )
        consumers = sorted(self._allocated_of(found))
        if consumers:
            shown = ", ".join(consumers[:_SHOWN]) + (", …" if len(consumers) > _SHOWN else "")
            message = f"{found.name} is in use by {len(consumers)} consumers: {shown}"
            raise Rejected("provider_in_use", message, provider=provider_id, consumers=consumers)
        self._rows.drop(found)

    @override
    def set_inventories(
        self, provider_id: str, inventories: Mapping[str, Inventory], generation: int
    ) -> Provider:
        return self._replace([Reshaping(provider_id, inventories, generation)], [])[provider_id]

    @override
    def set_traits(self, provider_id: str, traits: Iterable[str], generation: int) -> Provider:
        provider = self._locked_at(provider_id, generation)
        wanted = frozenset(traits)
        TRAITS.check(self._uow, wanted, provider.traits)
        return self._saved(provider, replace(provider, traits=wanted))

    @override
    def set_aggregates(
        self, provider_id: str, aggregates: Iterable[str], generation: int
    ) -> Provider:
        provider = self._locked_at(provider_id, generation)
        return self._saved(provider, replace(provider, aggregates=frozenset(aggregates)))

    def _locked_at(self, provider_id: str, generation: int) -> Provider:
        (provider,) = self._rows.lock([self._rows.must_get(provider_id)]).values()
        _check_generation(provider, generation)
        return provider

    def _saved(self, before: Provider, after: Provider) -> Provider:
        return before if after == before else self._rows.save(after)

    @override
    def ensure_classes(self, names: Iterable[str]) -> None:
        CLASSES.ensure(self._uow, names)

    @override
    def ensure_traits(self, names: Iterable[str]) -> None:
        TRAITS.ensure(self._uow, names)

    @override
    def candidates(self, request: CandidateRequest, limit: int) -> Candidates:
        # What we wrote may yet be undone: an index that lives on must not have seen it.
        provider_index = ProviderIndex() if self._rows.written else self._index
        provider_index.refresh(self._uow)
        candidates = provider_index.candidates(request, limit)
        if not candidates.found:
            # Whatever somebody has is known, be it made or only told of by a host.
            self._check_names(request)
        return candidates

    def _check_names(self, request: CandidateRequest) -> None:
        CLASSES.check(self._uow, {name for group in request.groups for name in group.resources})
        for rule in (request.root_traits, *(group.traits for group in request.groups)):
            TRAITS.check(self._uow, rule.names)

    @override
    def consumer(self, consumer_id: str) -> Consumer:
        held = self._uow.allocations.where(consumer_id=consumer_id)
        return consumer_of(
            consumer_id, held, self._rows.ids_of(allocation.provider for allocation in held)
        )

    @override
    def consumers_of(self, provider_id: str) -> Mapping[str, Resources]:
        return self._allocated_of(self._rows.must_get(provider_id))

    def _allocated_of(self, provider: Provider) -> Mapping[str, Resources]:
        held = self._uow.allocations.where(provider=provider.name)
        return FrozenMap(
            {allocation.consumer_id: FrozenMap(allocation.amounts) for allocation in held}
        )

    @override
    def usages(self, project_id: str, user_id: str | None = None) -> Resources:
        total: Counter[str] = Counter()
        for allocation in self._uow.allocations.where(project_id=project_id):
            if user_id in (None, allocation.user_id):
                total.update(allocation.amounts)
        return FrozenMap(total)

    @override
    def write(self, consumers: Sequence[Consumer]) -> None:
        self._replace([], consumers)

    @override
    def reshape(self, shapes: Sequence[Reshaping], consumers: Sequence[Consumer]) -> None:
        self._replace(shapes, consumers)

    def _replace(
        self, shapes: Sequence[Reshaping], consumers: Sequence[Consumer]
    ) -> Mapping[str, Provider]:
        """Replace inventories and what consumers hold; return the providers shaped, by id."""
        for shape in shapes:
            check_inventories(shape.inventories)
        wanted = checked(consumers)
        before = self._locked_allocations(wanted)
        touched = {id_ for consumer in wanted for id_ in consumer.allocations}
        touched.update(shape.provider_id for shape in shapes)
        # Without rows to lock before them, providers are found and locked at once.
        found = self._rows.must_find(touched, lock=not before)
        names = {provider.id: provider.name for provider in found}
        after = [row for consumer in wanted for row in allocations_of(consumer, names)]
        change = turnover(before, after)
        self._lock_allocations(change.gone)
        locked = self._lock_providers(
            found, change, {names[reshaping.provider_id] for reshaping in shapes}
        )
        shaped = self._shaped(shapes, {provider.id: provider for provider in locked.values()})
        settled_ = [
            self._settled(shaped.get(provider.id, provider), change) for provider in locked.values()
        ]
        for provider in settled_:
            if provider.id in shaped:
                _check_classes(provider, locked[provider.name])
        return self._written(change, locked, settled_)

    def _locked_allocations(self, wanted: Sequence[Consumer]) -> list[Allocation]:
        """Return what the consumers hold, which only we may replace from now on."""
        for consumer in wanted:
            # A lock of the name, since there may be no row yet that could be locked.
            self._uow.lock(f"consumer {consumer.id}")
        ids = [consumer.id for consumer in wanted]
        held = self._uow.allocations.where(consumer_id=ids) if ids else []
        for consumer in wanted:
            of_it = [row for row in held if row.consumer_id == consumer.id]
            if generation_of(of_it) != consumer.generation:
                raise _moved(f"what consumer {consumer.id} holds", consumer=consumer.id)
        return held

    def _lock_allocations(self, rows: Iterable[Allocation]) -> None:
        # Before any provider, as whoever releases does; those do not lock the consumer's name.
        for row in rows:
            if self._uow.allocations.lock(row.consumer_id, row.provider) != row:
                raise _moved(f"what consumer {row.consumer_id} holds", consumer=row.consumer_id)

    def _lock_providers(
        self, found: Sequence[Provider], change: Turnover, shaped: Iterable[str]
    ) -> Mapping[str, Provider]:
        """Lock, and read anew, the providers that this touches; return them by name."""
        touched = change.providers.union(shaped)
        # A host that is gone has nothing to be given back to.
        others = self._rows.named(touched - {provider.name for provider in found})
        return self._rows.lock(
            provider for provider in (*found, *others) if provider.name in touched
        )

    def _shaped(
        self, shapes: Iterable[Reshaping], locked: Mapping[str, Provider]
    ) -> Mapping[str, Provider]:
        """Return the providers with their new inventories, by id."""
        shaped = {}
        for shape in shapes:
            before = locked[shape.provider_id]
            _check_generation(before, shape.generation)
            CLASSES.check(self._uow, shape.inventories, before.inventories)
            same = before.inventories == shape.inventories
            shaped[before.id] = (
                before if same else replace(before, inventories=FrozenMap(shape.inventories))
            )
        return shaped

    def _settled(self, provider: Provider, change: Turnover) -> Provider:
        requested = {
            name
            for allocation in change.come
            if allocation.provider == provider.name
            for name in allocation.amounts
        }
        CLASSES.check(self._uow, requested - provider.inventories.keys(), provider.used)
        return settled(provider, change)

    def _written(
        self, change: Turnover, locked: Mapping[str, Provider], after: Iterable[Provider]
    ) -> Mapping[str, Provider]:
        """Write all, or nothing; return the providers as they are now, by id."""
        written = {}
        # A single row goes in or not by itself.
        single = not change.gone and len(change.come) < 2
        with nullcontext() if single else self._uow.savepoint():
            for row in change.gone:
                self._uow.allocations.drop(row.consumer_id, row.provider)
            self._add(change.come)
            for provider in after:
                guests = change.guests(provider.name)
                same = provider == locked[provider.name] and not guests
                written[provider.id] = provider if same else self._rows.save(provider, guests)
        return written

    def _add(self, rows: Sequence[Allocation]) -> None:
        try:
            self._uow.allocations.add_many(rows)
        except Conflict as error:
            # A claim of an instance, which goes by the host's version and not by our turn.
            raise _moved("what a consumer holds", consumer=rows[0].consumer_id) from error


def _check_generation(provider: Provider, generation: int) -> None:
    if provider.generation != generation:
        raise _moved(f"resource provider {provider.name}", provider=provider.id)


def _check_classes(after: Provider, before: Provider) -> None:
    """Raise `Rejected` where a class that is in use has been removed."""
    removed = before.inventories.keys() - after.inventories.keys()
    classes = sorted(name for name in removed if after.used.get(name))
    if classes:
        message = f"{after.name} must keep {', '.join(classes)}: consumers hold some"
        raise Rejected("inventory_in_use", message, provider=after.id, classes=classes)


def _moved(what: str, **data: str) -> Conflict:
    message = f"{what} has changed since it was read: read it again, and decide anew"
    return Conflict("generation_conflict", message, **data)
