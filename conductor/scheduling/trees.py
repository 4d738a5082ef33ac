"""The providers beside the hosts, as decisions see them: children of hosts, and those that share.

Few hosts have any. Where there are none, and the request has no groups, an instance takes all it
asks of its host and nothing here is looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from conductor.placement.candidates import Tree, candidates, is_sharing, serves
from conductor.placement.providers import Resources, root_of
from conductor.placement.requests import Candidate, CandidateRequest
from conductor.placement.resources import room
from conductor.store.records import Host, Provider
from models.hardware.frozen import FrozenMap

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


class Beside:
    """All providers that are no hosts, at one moment."""

    def __init__(self, providers: Iterable[Provider] = ()) -> None:
        self._by_id = {each.id: each for each in providers}
        self._sharing = [each for each in self._by_id.values() if is_sharing(each)]
        self._below: dict[str, list[Provider]] = defaultdict(list)
        for each in self._by_id.values():
            if each.parent_id is not None:
                self._below[each.parent_id].append(each)

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def __contains__(self, provider_id: object) -> bool:
        return provider_id in self._by_id

    def get(self, provider_id: str) -> Provider | None:
        """Return a provider by its id."""
        return self._by_id.get(provider_id)

    def tree_of(self, host: Host) -> Tree:
        """Return the tree that a host is the root of, with the providers that share with it."""
        root = root_of(host)
        own = (root, *self._under(root.id))
        sharing = tuple(each for each in self._sharing if each not in own and serves(each, own))
        return Tree(own, sharing)

    def charged(self, held: Held, *, back: bool = False) -> Beside:
        """Return them with this much more in use, or less where it is given back."""
        if not any(each in self._by_id for each in held):
            return self
        sign = -1 if back else 1
        changed = {
            each: _used(self._by_id[each], amounts, sign)
            for each, amounts in held.items()
            if each in self._by_id
        }
        return Beside((self._by_id | changed).values())

    def most(self, hosts: Iterable[Host], name: str) -> Mapping[str, int]:
        """Return by host the most that one provider beside it has left of a class, where any has.

        Costs those that have the class, and a look at every host where one of them shares.
        """
        offering = [each for each in self._by_id.values() if name in each.inventories]
        if not offering:
            return {}
        roots = {each.root_id for each in offering}
        shared = any(is_sharing(each) for each in offering)
        found = {}
        for host in hosts:
            if shared or host.provider_id in roots:
                near = self.tree_of(host).providers[1:]
                found[host.name] = max((_room(each, name) for each in near), default=0)
        return found

    def _under(self, provider_id: str) -> Iterator[Provider]:
        for child in sorted(self._below.get(provider_id, ()), key=_by_name):
            yield child
            yield from self._under(child.id)


NOTHING_BESIDE = Beside()


def shares_on(host: Host, request: CandidateRequest, beside: Beside, held: Held) -> Shares | None:
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
    names = {each.id: each.name for each in tree.providers}
    beside = {each: took for each, took in found.allocations.items() if each != host.provider_id}
    groups = {
        suffix: ", ".join(names[each] for each in served)
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
    return replace(provider, used=FrozenMap({name: each for name, each in used.items() if each}))


def _by_name(provider: Provider) -> str:
    return provider.name
