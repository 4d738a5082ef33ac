"""What instances and their moves should hold of which providers (pure).

Said by the records of instances and moves, flavors and inventories: never by the allocation that
may be the lost one. What these cannot tell stays undecided, and is for a person.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from conductor.placement.candidates.candidate_search import is_sharing, serves
from conductor.placement.providers import INSTANCE, MIGRATION, Resources, root_of
from conductor.placement.requested_amounts import total_requested
from conductor.store import Allocation, Host, Instance, Migration, Provider, nothing
from models.errors import Rejected
from models.hardware import Flavor, HostTopology, Image, Placement, accounting
from models.lifecycle import InstanceState, MigrationState


@dataclass(frozen=True, slots=True)
class Share:
    """What a consumer should hold of one host, and of providers beside it (`others`, by name).

    `undecided` is what it should hold of some of the providers `doubtful`, nothing tells of which.
    """

    consumer_id: str
    kind: str
    host: str
    amounts: Resources
    placement: Placement | None
    others: Mapping[str, Resources] = field(default_factory=nothing)
    undecided: Resources = field(default_factory=nothing)
    doubtful: frozenset[str] = frozenset()

    @property
    def providers(self) -> tuple[str, ...]:
        """The host, and those beside of which what is held has to change."""
        return (self.host, *self.others)

    def of(self, provider: str, held: Resources) -> Resources:
        """Return what it should hold of a provider where it holds this; what is open stays."""
        if provider != self.host:
            return {**held, **self.others.get(provider, {})}
        kept = {name: amount for name, amount in held.items() if name in self.undecided}
        return {**kept, **self.amounts}


class Providers:
    """Hosts and all other providers, as one transaction saw them."""

    def __init__(self, hosts: Iterable[Host], others: Iterable[Provider]) -> None:
        self.others = {other.name: other for other in others}
        self._roots = {host.name: root_of(host) for host in hosts}
        self._hosts_by_id = {root.id: name for name, root in self._roots.items() if root.id}
        self._children = defaultdict(list)
        for other in self.others.values():
            self._children[self._hosts_by_id.get(other.root_id or "")].append(other)
        self._sharing = [other for other in self.others.values() if is_sharing(other)]

    def host_of(self, provider: str) -> str | None:
        """Return the host in whose tree a provider is, itself if it is one; None of the others."""
        if provider in self._roots:
            return provider
        found = self.others.get(provider)
        return self._hosts_by_id.get(found.root_id or "") if found else None

    def serving(self, host: str) -> list[Provider]:
        """Return the host and whatever can serve it beside: its children, and what shares."""
        root = self._roots.get(host)
        if root is None:
            return []
        tree = [root, *self._children[host]]
        return [*tree, *(provider for provider in self._sharing if serves(provider, tree))]

    def hosts_served(self, provider: str) -> list[str]:
        """Return the hosts whose instances may hold something of a provider."""
        host = self.host_of(provider)
        if host is not None and not is_sharing_name(self, provider):
            return [host]
        found = self.others.get(provider)
        return [name for name in self._roots if found in self.serving(name)]


def is_sharing_name(providers: Providers, name: str) -> bool:
    """Say whether the provider of this name serves other trees than its own."""
    found = providers.others.get(name)
    return found is not None and is_sharing(found)


def has_begun(move: Migration) -> bool:
    """Say whether an unfinished move's migration holds the source, and no longer the instance."""
    return move.unfinished and move.state is not MigrationState.ACCEPTED


def shares_of(
    instance: Instance | None,
    moves: Iterable[Migration],
    held: Iterable[Allocation],
    providers: Providers,
) -> Iterator[Share]:
    """Yield what an instance and its unfinished moves should hold of each host they are on.

    Of a move that has begun the migration holds the source, and the instance the target; one
    that was only asked for holds nothing yet. Of providers that share, an instance that moves
    holds both sides'. Where one provider alone can have what is missing, that one has it.
    """
    if instance is None or instance.state is InstanceState.DELETED:
        return
    rows = tuple(held)
    begun = [move for move in moves if has_begun(move)]

    def share(
        consumer: str, kind: str, host: str, flavor: Flavor, placement: Placement | None
    ) -> Share:
        side = _Side((consumer, kind), host, rows, providers, moving=bool(begun))
        return side.share(_total_requested(flavor, instance.image), placement)

    if instance.host and not any(not move.switched for move in begun):
        where, placed = instance.host, instance.placement
        yield share(instance.id, INSTANCE, where, instance.flavor, placed)
    for move in begun:
        yield share(move.id, MIGRATION, move.source, move.source_flavor, move.source_placement)
        if move.target is not None and not move.switched:
            placed = move.target_placement
            yield share(instance.id, INSTANCE, move.target, move.target_flavor, placed)


def used_by(topology: HostTopology, shares: Iterable[Share]) -> HostTopology:
    """Return the hardware with exactly these placements in use.

    Raises `Rejected` (see `accounting.claim`) where two of them exclude each other.
    """
    after = accounting.without_use(topology)
    for share in shares:
        if share.placement is not None:
            after = accounting.claim(after, share.placement)
    return after


class _Side:
    """One consumer on one host: what it holds there, and what could hold something for it."""

    def __init__(
        self,
        consumer: tuple[str, str],
        host: str,
        rows: Sequence[Allocation],
        providers: Providers,
        *,
        moving: bool,
    ) -> None:
        self._consumer, self._kind = consumer
        self._host = host
        self._providers, self._moving = providers, moving
        self._serving = providers.serving(host)
        near = {provider.name for provider in self._serving}
        # What shares stays with the instance while it moves, for both sides.
        self._allocated = {
            allocation.provider: allocation.amounts
            for allocation in sorted(rows, key=lambda row: row.consumer_id == self._consumer)
            if (
                allocation.consumer_id == self._consumer
                and providers.host_of(allocation.provider) in (None, host)
            )
            or (allocation.provider in near and is_sharing_name(providers, allocation.provider))
        }

    def share(self, requested: Resources | None, placement: Placement | None) -> Share:
        if requested is None:
            # A flavor that contradicts itself holds what it holds: there is nothing to compare.
            here = self._allocated.get(self._host)
            lost, doubt = ({}, frozenset()) if here else ({"of a flavor": 1}, {self._host})
            return Share(
                self._consumer, self._kind, self._host, here or {}, placement,
                undecided=lost, doubtful=frozenset(doubt),
            )  # fmt: skip
        wanted: dict[str, dict[str, int]] = defaultdict(dict)
        undecided, doubtful = dict[str, int](), set[str]()
        for name, need in requested.items():
            where = self._where(name, need)
            for provider, amount in (where or {}).items():
                wanted[provider][name] = amount
            if where is None:
                undecided[name] = need
                doubtful |= self._places(name)
        return Share(
            self._consumer,
            self._kind,
            self._host,
            wanted.pop(self._host, {}),
            placement,
            {name: row for name, row in wanted.items() if self._is_wrong(name, row)},
            undecided,
            frozenset(doubtful),
        )

    def _where(self, resource_class: str, need: int) -> Resources | None:
        """Return which providers have how much of what is needed; None where nothing tells."""
        held = {
            provider: amounts[resource_class]
            for provider, amounts in self._allocated.items()
            if amounts.get(resource_class)
        }
        total = sum(held.values())
        if total == need or (self._moving and total > need):
            return held
        places = self._places(resource_class)
        # Who holds what is shared, while the instance moves, depends on both sides.
        shared = any(is_sharing_name(self._providers, place) for place in places)
        if len(places) != 1 or (self._moving and shared):
            return None
        return {min(places): need}

    def _places(self, resource_class: str) -> set[str]:
        served = {
            provider.name for provider in self._serving if resource_class in provider.inventories
        }
        held = {name for name, amounts in self._allocated.items() if resource_class in amounts}
        return served | (held - {self._host})

    def _is_wrong(self, provider: str, wanted: Resources) -> bool:
        """Say whether a row beside the host lacks what should be in it."""
        held = self._allocated.get(provider, {})
        return any(held.get(name) != amount for name, amount in wanted.items())


def _total_requested(flavor: Flavor, image: Image | None) -> Resources | None:
    try:
        return total_requested(flavor, image)
    except Rejected:
        return None
