"""Resource providers other than hosts: children of hosts, and sharing providers.

Few fleets have any. Without them, and without request groups, all of an instance's amounts come
from its host and nothing of this module runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from conductor.placement.candidates.candidate_search import Tree, candidates, is_sharing, serves
from conductor.placement.providers import Resources, root_of
from conductor.placement.request_groups import Candidate, CandidateRequest
from conductor.placement.resources import shortage_of
from conductor.store import Host, Provider
from models.hardware import FrozenMap

NO_PROVIDERS: Final = "no_providers"
NO_PROVIDERS_TEXTS: Final = ("has no providers for all groups", "have no providers for all groups")
"""The predicate, for one host and for several, where each group fits alone but not all together."""

ProviderAmounts = Mapping[str, Resources]
"""Amounts by class, by provider id."""


@dataclass(frozen=True, slots=True)
class AllocationCandidate:
    """What would be allocated from a host, and from which other providers (Placement's word).

    `groups` maps each request group with a suffix to the name of the provider that serves it.
    """

    host_amounts: Resources
    provider_amounts: ProviderAmounts = field(default_factory=lambda: FrozenMap({}))
    groups: Mapping[str, str] = field(default_factory=lambda: FrozenMap({}))


class _Relations:
    """Which providers are whose children, and which share with whom; independent of use."""

    def __init__(self, providers: Iterable[Provider]) -> None:
        known = sorted(providers, key=lambda provider: provider.name)
        self.sharing = {provider.id: provider for provider in known if is_sharing(provider)}
        self._below: dict[str, list[Provider]] = defaultdict(list)
        self.in_tree: dict[str, list[str]] = defaultdict(list)
        for provider in known:
            self.in_tree[provider.root_id].append(provider.id)
            if provider.parent_id is not None:
                self._below[provider.parent_id].append(provider)
        self.classes = frozenset(name for provider in known for name in provider.inventories)
        self.shared_classes = frozenset(
            name for provider in self.sharing.values() for name in provider.inventories
        )
        self._with: dict[str, tuple[Sequence[str], tuple[str, ...]]] = {}

    def under(self, provider_id: str) -> Iterator[str]:
        """Yield the ids of a provider's descendants, depth first."""
        for child in self._below.get(provider_id, ()):
            yield child.id
            yield from self.under(child.id)

    def sharing_with(self, host: Host) -> tuple[str, ...]:
        """Return the ids of providers that share with a host's tree from outside, by name."""
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
    """All providers other than hosts, at one moment; immutable."""

    def __init__(
        self,
        providers: Iterable[Provider] = (),
        relations: _Relations | None = None,
        best: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        """`relations` and `best` (by class and root) are carried over from an earlier state."""
        self._by_id = {provider.id: provider for provider in providers}
        self._relations = relations or _Relations(self._by_id.values())
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
        return not self._relations.classes.isdisjoint(names)

    def tree_of(self, host: Host) -> Tree:
        """Return the tree that a host is the root of, with the providers that share with it."""
        under = (self._by_id[name] for name in self._relations.under(host.provider_id))
        sharing = (self._by_id[name] for name in self._relations.sharing_with(host))
        return Tree((root_of(host), *under), tuple(sharing))

    def near(self, host: Host) -> tuple[SharedProviders, tuple[str, ...]]:
        """Return only those that a host's instances can use, and the ids of the sharing ones."""
        near = self.tree_of(host).providers[1:]
        return SharedProviders(near), tuple(
            provider.id for provider in near if is_sharing(provider)
        )

    def allocate(self, amounts: ProviderAmounts) -> SharedProviders:
        """Return them with these amounts more in use; unknown providers are left out."""
        return self._with_used(amounts, 1)

    def release(self, amounts: ProviderAmounts) -> SharedProviders:
        """Return them with these amounts less in use; unknown providers are left out."""
        return self._with_used(amounts, -1)

    def _with_used(self, amounts: ProviderAmounts, sign: int) -> SharedProviders:
        changed = {
            provider_id: _used(self._by_id[provider_id], resources, sign)
            for provider_id, resources in amounts.items()
            if provider_id in self._by_id
        }
        return self._with(changed) if changed else self

    def newer(self, changed: Mapping[str, Provider | None]) -> SharedProviders:
        """Return them with these states by id (None: deleted). Cheapest where only use changed."""
        known = self._by_id
        if all(
            provider and provider_id in known and _differ_in_use_only(provider, known[provider_id])
            for provider_id, provider in changed.items()
        ):
            return self._with(
                {
                    provider_id: provider
                    for provider_id, provider in changed.items()
                    if provider is not None
                }
            )
        return SharedProviders(
            provider for provider in (known | dict(changed)).values() if provider is not None
        )

    def _with(self, changed: Mapping[str, Provider]) -> SharedProviders:
        by_id = self._by_id | dict(changed)
        roots = {provider.root_id for provider in changed.values()}
        best = {
            name: {**known, **self._best_under(roots & known.keys(), name, by_id)}
            for name, known in self._best.items()
        }
        return SharedProviders(by_id.values(), self._relations, best)

    def most(self, hosts: Iterable[Host], name: str) -> Mapping[str, int]:
        """Return by host the largest free amount of a class in any one other provider it can use.

        Hosts without such a provider are left out. One look-up a host: the maximum of each tree is
        computed once and kept.
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
        if name not in self._relations.shared_classes:
            return {host.name: best[host.provider_id] for host in hosts if host.provider_id in best}
        relations, found = self._relations, {}
        shared = {sharing: _free(self._by_id[sharing], name) for sharing in relations.sharing}
        for host in hosts:
            most = best.get(host.provider_id, 0)
            for sharing in relations.sharing_with(host):
                most = max(most, shared[sharing])
            found[host.name] = most
        return found

    def _best_under(
        self, roots: Iterable[str], name: str, by_id: Mapping[str, Provider]
    ) -> dict[str, int]:
        return {
            root: max(_free(by_id[provider], name) for provider in self._relations.in_tree[root])
            for root in roots
        }


NO_SHARED_PROVIDERS = SharedProviders()


def _differ_in_use_only(one: Provider, other: Provider) -> bool:
    """Return whether two states of a provider differ in amounts only."""
    return (
        one.inventories.keys() == other.inventories.keys()
        and one.traits == other.traits
        and one.aggregates == other.aggregates
        and (one.parent_id, one.root_id) == (other.parent_id, other.root_id)
    )


def allocation_candidate(
    host: Host, request: CandidateRequest, providers: SharedProviders, allocated: ProviderAmounts
) -> AllocationCandidate | None:
    """Return what a request would be allocated from a host and other providers, or None.

    What the instance has `allocated` already, such as a disk on shared storage while it moves,
    counts as free: the new allocation replaces it.
    """
    unsuffixed = request.groups[0].resources
    if len(request.groups) == 1 and shortage_of(host, unsuffixed) is None:
        return AllocationCandidate(unsuffixed)
    tree = providers.release(allocated).tree_of(host)
    found = next(candidates(tree, request), None)
    return None if found is None else _candidate_on(host, found, tree)


def _candidate_on(host: Host, found: Candidate, tree: Tree) -> AllocationCandidate:
    names = {provider.id: provider.name for provider in tree.providers}
    provider_amounts = {
        provider_id: amounts
        for provider_id, amounts in found.allocations.items()
        if provider_id != host.provider_id
    }
    groups = {
        suffix: ", ".join(names[name] for name in served)
        for suffix, served in found.mappings.items()
        if suffix
    }
    own = found.allocations.get(host.provider_id, FrozenMap({}))
    return AllocationCandidate(own, FrozenMap(provider_amounts), FrozenMap(groups))


def _free(provider: Provider, name: str) -> int:
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
