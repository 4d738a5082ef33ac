"""The providers beside the hosts, as decisions see them: children of hosts, and those that share.

Few hosts have any. Where there are none, and the request has no groups, an instance takes all it
asks of its host and nothing here is looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from conductor.placement.candidates.candidate_search import Tree, candidates, is_sharing, serves
from conductor.placement.providers import Resources, root_of
from conductor.placement.request_groups import Candidate, CandidateRequest
from conductor.placement.resources import room
from conductor.store.records import Host, Provider
from models.hardware import FrozenMap

NO_PROVIDERS: Final = "no_providers"
NO_PROVIDERS_TEXTS: Final = ("has no providers for all groups", "have no providers for all groups")
"""What is said of a host, and of several, that have room for each group alone, and not for all."""

Held = Mapping[str, Resources]
"""Amounts by class, by provider id."""


@dataclass(frozen=True, slots=True)
class Shares:
    """What an instance takes of its host, and of which providers beside it.

    `groups` says which provider, by name, serves each request group with a suffix.
    """

    own: Resources
    beside: Held = field(default_factory=lambda: FrozenMap({}))
    groups: Mapping[str, str] = field(default_factory=lambda: FrozenMap({}))


class _Kin:
    """Which providers are whose children and share with whom: nothing of it changes with use."""

    def __init__(self, providers: Iterable[Provider]) -> None:
        known = sorted(providers, key=lambda provider: provider.name)
        self.sharing = {known_name.id: known_name for known_name in known if is_sharing(known_name)}
        self._below: dict[str, list[Provider]] = defaultdict(list)
        self.in_tree: dict[str, list[str]] = defaultdict(list)
        for known_name in known:
            self.in_tree[known_name.root_id].append(known_name.id)
            if known_name.parent_id is not None:
                self._below[known_name.parent_id].append(known_name)
        self.classes = frozenset(name for known_name in known for name in known_name.inventories)
        self.shared_classes = frozenset(
            name for provider in self.sharing.values() for name in provider.inventories
        )
        self._with: dict[str, tuple[Sequence[str], tuple[str, ...]]] = {}

    def under(self, provider_id: str) -> Iterator[str]:
        """Yield the ids of a provider's children, theirs behind each."""
        for child in self._below.get(provider_id, ()):
            yield child.id
            yield from self.under(child.id)

    def sharing_with(self, host: Host) -> tuple[str, ...]:
        """Return the ids of who shares with a host's tree and is not in it, in order of name."""
        known = self._with.get(host.provider_id)
        if known is None or known[0] != host.aggregates:
            own = (root_of(host), *self._children(host.provider_id))
            ids = {provider.id for provider in own}
            found = (provider for provider in self.sharing.values() if provider.id not in ids)
            serving = tuple(provider.id for provider in found if serves(provider, own))
            known = self._with[host.provider_id] = (host.aggregates, serving)
        return known[1]

    def _children(self, provider_id: str) -> Iterator[Provider]:
        for child in self._below.get(provider_id, ()):
            yield child
            yield from self._children(child.id)


class SharedProviders:
    """All providers that are no hosts, at one moment."""

    def __init__(
        self,
        providers: Iterable[Provider] = (),
        kin: _Kin | None = None,
        best: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        """`kin` and `best`, which is by class and root, are what an earlier one found out."""
        self._by_id = {provider.id: provider for provider in providers}
        self._kin = kin or _Kin(self._by_id.values())
        self._best = dict(best or {})

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def __contains__(self, provider_id: object) -> bool:
        return provider_id in self._by_id

    def get(self, provider_id: str) -> Provider | None:
        """Return a provider by its id."""
        return self._by_id.get(provider_id)

    @property
    def names(self) -> Mapping[str, str]:
        """Their ids by name."""
        return {provider.name: provider.id for provider in self._by_id.values()}

    def offers(self, names: Iterable[str]) -> bool:
        """Say whether any of them has one of these classes."""
        return not self._kin.classes.isdisjoint(names)

    def tree_of(self, host: Host) -> Tree:
        """Return the tree that a host is the root of, with the providers that share with it."""
        under = (self._by_id[name] for name in self._kin.under(host.provider_id))
        sharing = (self._by_id[name] for name in self._kin.sharing_with(host))
        return Tree((root_of(host), *under), tuple(sharing))

    def near(self, host: Host) -> tuple[SharedProviders, tuple[str, ...]]:
        """Return those alone that a host's instances can use, and the ids of who shares of them."""
        near = self.tree_of(host).providers[1:]
        return SharedProviders(near), tuple(
            provider.id for provider in near if is_sharing(provider)
        )

    def charged(self, held: Held, *, back: bool = False) -> SharedProviders:
        """Return them with this much more in use, or less where it is given back."""
        sign = -1 if back else 1
        changed = {
            allocation: _used(self._by_id[allocation], amounts, sign)
            for allocation, amounts in held.items()
            if allocation in self._by_id
        }
        return self._with(changed) if changed else self

    def newer(self, changed: Mapping[str, Provider | None]) -> SharedProviders:
        """Return them as these are now, by id; None is gone. Costs least where only use changed."""
        known = self._by_id
        if all(
            provider and key in known and _alike(provider, known[key])
            for key, provider in changed.items()
        ):
            return self._with(
                {key: provider for key, provider in changed.items() if provider is not None}
            )
        return SharedProviders(
            known_name for known_name in (known | dict(changed)).values() if known_name is not None
        )

    def _with(self, changed: Mapping[str, Provider]) -> SharedProviders:
        by_id = self._by_id | dict(changed)
        roots = {provider.root_id for provider in changed.values()}
        best = {
            name: {**known, **self._best_under(roots & known.keys(), name, by_id)}
            for name, known in self._best.items()
        }
        return SharedProviders(by_id.values(), self._kin, best)

    def most(self, hosts: Iterable[Host], name: str) -> Mapping[str, int]:
        """Return by host the most that one provider beside it has left of a class, where any has.

        Costs a look-up a host; what the providers have is added up once, and kept.
        """
        if not self.offers([name]):
            return {}
        if name not in self._best:
            offering = (
                provider for provider in self._by_id.values() if name in provider.inventories
            )
            roots = {provider.root_id for provider in offering}
            self._best[name] = self._best_under(roots, name, self._by_id)
        best = self._best[name]
        if name not in self._kin.shared_classes:
            return {host.name: best[host.provider_id] for host in hosts if host.provider_id in best}
        kin, found = self._kin, {}
        shared = {item: _room(self._by_id[item], name) for item in kin.sharing}
        for host in hosts:
            most = best.get(host.provider_id, 0)
            for item in kin.sharing_with(host):
                most = max(most, shared[item])
            found[host.name] = most
        return found

    def _best_under(
        self, roots: Iterable[str], name: str, by_id: Mapping[str, Provider]
    ) -> dict[str, int]:
        return {
            root: max(_room(by_id[item], name) for item in self._kin.in_tree[root])
            for root in roots
        }


NO_SHARED_PROVIDERS = SharedProviders()


def _alike(one: Provider, other: Provider) -> bool:
    """Say whether two states of a provider differ in numbers only."""
    return (
        one.inventories.keys() == other.inventories.keys()
        and one.traits == other.traits
        and one.aggregates == other.aggregates
        and (one.parent_id, one.root_id) == (other.parent_id, other.root_id)
    )


def shares_on(
    host: Host, request: CandidateRequest, beside: SharedProviders, held: Held
) -> Shares | None:
    """Return what a request takes of a host and of the providers beside it, or nothing.

    What the instance holds already, such as a disk on shared storage while it moves, is counted
    as free: it takes its place.
    """
    plain = request.groups[0].resources
    if len(request.groups) == 1 and _fits_alone(host, plain):
        return Shares(plain)
    tree = beside.charged(held, back=True).tree_of(host)
    found = next(candidates(tree, request), None)
    return None if found is None else _shares(found, tree, host)


def _shares(found: Candidate, tree: Tree, host: Host) -> Shares:
    names = {provider.id: provider.name for provider in tree.providers}
    beside = {
        allocation: took
        for allocation, took in found.allocations.items()
        if allocation != host.provider_id
    }
    groups = {
        suffix: ", ".join(names[name] for name in served)
        for suffix, served in found.mappings.items()
        if suffix
    }
    own = found.allocations.get(host.provider_id, FrozenMap({}))
    return Shares(own, FrozenMap(beside), FrozenMap(groups))


def _fits_alone(host: Host, asked: Resources) -> bool:
    return room(host, asked) is None


def _room(provider: Provider, name: str) -> int:
    inventory = provider.inventories.get(name)
    if inventory is None:
        return 0
    return min(inventory.most, inventory.capacity - provider.used.get(name, 0))


def _used(provider: Provider, amounts: Resources, sign: int) -> Provider:
    used = dict(provider.used)
    for name, amount in amounts.items():
        used[name] = max(0, used.get(name, 0) + sign * amount)
    return replace(
        provider, used=FrozenMap({name: number for name, number in used.items() if number})
    )
