"""Mirrors our allocations to a Placement server that other services share.

Hosts, inventories and allocations are decided here. A claim is committed here first (with its
placement, in one transaction) and then written to the server; where the server has no capacity it
is released again. Releases are found in the change feed of hosts, and written soon after.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from conductor.placement.allocations import heal_all
from conductor.placement.local.store_placement import StorePlacement
from conductor.placement.ports import PlacementService, ProviderQuery
from conductor.placement.providers import Consumer, Resources, provider_id_of
from conductor.placement.sync.provider_tree import ProviderTree
from conductor.store import Follower, Host, Provider, Store, UnitOfWork
from models.errors import Broken, ConductorError, Rejected, Unreachable
from models.throttled_log import ThrottledLog


@dataclass(frozen=True, slots=True)
class Difference:
    """A consumer whose allocation of one provider differs between the server and our tables."""

    provider: str
    consumer_id: str
    here: Resources
    there: Resources


@dataclass(frozen=True, slots=True)
class _Side:
    """What our tables say of one tree of providers, and who holds what of it here and there.

    `held` and `there` are by provider id and consumer; a family is an instance with its moves.
    """

    providers: Sequence[Provider]
    held: Mapping[str, Mapping[str, Resources]]
    there: Mapping[str, Mapping[str, Resources]]
    families: Sequence[tuple[str, ...]]

    @property
    def consumers(self) -> frozenset[str]:
        """Everybody who is ours."""
        return frozenset(who for family in self.families for who in family)


class Server(PlacementService, Protocol):
    """A placement service that can be told for which request it is asked."""

    def on_behalf_of(self, request_id: str) -> PlacementService:
        """Return the same service, asked for the request of this id."""


class PlacementMirror:
    """Keeps a Placement server equal to our tables, as far as it is about our consumers.

    Consumers that our tables have never heard of are somebody else's, and left alone; so are
    providers, classes, traits and aggregates that others added to the trees of our hosts.
    """

    def __init__(self, store: Store, placement: Server) -> None:
        self._store = store
        self._placement = placement
        self._hosts: Follower[Host] = Follower("name", lambda host: host.version)
        self._others: Follower[Provider] = Follower("id", lambda provider: provider.generation)
        self._due: dict[str, str] = {}
        # What is refused for good is tried again all the same, each second: somebody may mend it.
        self._warnings = ThrottledLog()

    def claim(self, consumer_ids: Sequence[str], request_id: str = "") -> None:
        """Write the allocations of these to the server, all or none; it logs the request's id too.

        Raises `NoValidHost` (`no_capacity`) where the server has no room, `Rejected` or `Broken`
        where it will not have a provider of ours as it is (with the `host`, where one is to
        blame) and `Unreachable` when it does not answer.
        """
        with self._store.read() as uow:
            ours = StorePlacement(uow)
            consumers = [ours.consumer(consumer_id) for consumer_id in consumer_ids]
            roots = {root for consumer in consumers for root in _roots(ours, consumer.allocations)}
        for root in sorted(roots):
            side = self._side(root)
            try:
                self._flush(side)
            except (Rejected, Broken) as error:
                raise type(error)(error.code, error.message, host=side.providers[0].name) from error
        self._heal(self._placement.on_behalf_of(request_id), consumer_ids)

    def follow(self) -> int:
        """Write there what has changed here since the last call; return how many trees failed.

        What failed is tried again at the next call, apart from all others.
        """
        self._note_changes()
        failed = {}
        for root, name in sorted(self._due.items()):
            try:
                self._write(root)
            except ConductorError as error:
                failed[root] = name
                self._warnings.warn(f"placement differs at {name}", reason=error.message)
                if isinstance(error, Unreachable):
                    failed.update(self._due)
                    break
        self._due = failed
        return len(failed)

    def differences(self) -> Iterator[Difference]:
        """Yield what our consumers hold at the server otherwise than here, host by host."""
        with self._store.read() as uow:
            roots = sorted(
                {provider.root_id for provider in StorePlacement(uow).providers(ProviderQuery())}
            )
        for root in roots:
            yield from self._differing(self._side(root))

    def _note_changes(self) -> None:
        with self._store.read() as uow:
            for name, host in self._hosts.changes(uow.hosts).items():
                self._due[host.provider_id if host else provider_id_of(name)] = name
            for key, change in self._others.changes(uow.providers).items():
                self._due[change.root_id if change else key] = change.name if change else key

    def _write(self, root: str) -> None:
        side = self._side(root)
        if not side.providers:
            self._forget(root)
            return
        self._flush(side)
        differing = {difference.consumer_id for difference in self._differing(side)}
        for family in side.families:
            if not differing.isdisjoint(family):
                self._heal(self._placement, family)

    def _heal(self, placement: PlacementService, consumer_ids: Sequence[str]) -> None:
        def now() -> list[Consumer]:
            with self._store.read() as uow:
                ours = StorePlacement(uow)
                return [ours.consumer(consumer_id) for consumer_id in consumer_ids]

        heal_all(placement, consumer_ids, now)

    def _differing(self, side: _Side) -> Iterator[Difference]:
        for provider in side.providers:
            here, there = side.held[provider.id], side.there.get(provider.id, {})
            for who in sorted(side.consumers & (here.keys() | there.keys())):
                ours, theirs = here.get(who, {}), there.get(who, {})
                if dict(ours) != dict(theirs):
                    yield Difference(provider.name, who, ours, theirs)

    def _side(self, root: str) -> _Side:
        """Return what is here of a tree, and who of ours holds some of it, here or there."""
        query = ProviderQuery(in_tree=root)
        there = {
            provider.id: self._placement.consumers_of(provider.id)
            for provider in self._placement.providers(query)
        }
        with self._store.read() as uow:
            ours = StorePlacement(uow)
            providers = ours.providers(query)
            held = {provider.id: ours.consumers_of(provider.id) for provider in providers}
            named = {who for side in (*held.values(), *there.values()) for who in side}
            families = _families(uow, named)
        return _Side(providers, held, there, families)

    def _flush(self, side: _Side) -> None:
        """Let the server have what we say of our providers, and keep what others added to them."""
        if not side.providers:
            return
        tree = ProviderTree(self._placement, side.providers[0].root_id)
        there = {provider.id: provider for provider in tree.providers()}
        wanted = {
            provider.id: _merged(provider, there.get(provider.id)) for provider in side.providers
        }
        tree.flush(list((there | wanted).values()))

    def _forget(self, root: str) -> None:
        """Delete at the server what is gone here, unless somebody else uses it."""
        there = self._placement.providers(ProviderQuery(in_tree=root))
        users = {who for provider in there for who in self._placement.consumers_of(provider.id)}
        with self._store.read() as uow:
            ours = {who for family in _families(uow, users) for who in family}
        ProviderTree(self._placement, root).delete(sorted(ours & users))


def _merged(ours: Provider, theirs: Provider | None) -> Provider:
    if theirs is None:
        return ours
    return replace(
        ours,
        inventories={**theirs.inventories, **ours.inventories},
        traits=ours.traits | theirs.traits,
        aggregates=ours.aggregates | theirs.aggregates,
    )


def _roots(ours: StorePlacement, allocations: Iterable[str]) -> Iterator[str]:
    for allocation in allocations:
        provider = ours.provider(allocation)
        if provider is not None:
            yield provider.root_id


def _families(uow: UnitOfWork, consumers: Iterable[str]) -> list[tuple[str, ...]]:
    """Return those that are, or were, instances of ours, each with its moves: one hands to another.

    An instance and its moves are written together, or one would find no room for what the other
    has not given back yet.
    """
    named = sorted(consumers)
    if not named:
        return []
    moved = {migration.instance_id for migration in uow.migrations.where(id=named)}
    owners = {instance.id for instance in uow.instances.where(id=named)} | moved
    family = {owner: [owner] for owner in sorted(owners)}
    for move in uow.migrations.where(instance_id=sorted(owners)):
        if move.unfinished or move.id in consumers:
            family[move.instance_id].append(move.id)
    return [tuple(row) for row in family.values()]
