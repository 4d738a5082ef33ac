"""An index of all providers in memory, refreshed from the change feed, that finds candidates.

1. Filter: columns (`provider_columns`) rule out trees that lack a class or a trait. O(trees) in
   NumPy for each class and trait.
2. Trees of one provider, as most hosts are, are answered from the columns: O(1) each.
3. The other trees are searched exactly (`candidate_search`), in the order of their roots' names;
   which trees refused a request is remembered until they change.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import Final

import numpy as np

from conductor.placement.candidates.candidate_search import Tree, candidates, is_sharing, root_id_of
from conductor.placement.local.provider_columns import Numbers, ProviderColumns, Providers
from conductor.placement.providers import parents_first, root_of
from conductor.placement.request_groups import Candidate, CandidateRequest, Candidates, RequestGroup
from conductor.store import Follower, Host, Provider, UnitOfWork
from models.hardware import FrozenMap

REFUSALS_AT_MOST: Final = 32
"""Of how many requests it is remembered which trees have refused them."""


WHOLES_AT_MOST: Final = 8
"""Of how many requests the candidates of trees of one provider are kept, half a KiB each."""


class ProviderIndex:
    """Hosts (roots, where they have a `provider_id`) and all other providers, as last read.

    Not for two threads at once.
    """

    def __init__(self) -> None:
        self._hosts: Follower[Host] = Follower("name", lambda host: host.version)
        self._rows: Follower[Provider] = Follower("id", lambda provider: provider.generation)
        self._ids: dict[str, str] = {}
        self._providers: dict[str, Provider] = {}
        self._members: dict[str, set[str]] = {}
        self._columns = ProviderColumns((), {})
        self._row_of: dict[str, int] = {}
        self._sharing: list[list[str]] = []
        self._refused: OrderedDict[CandidateRequest, Numbers] = OrderedDict()
        self._wholes: OrderedDict[CandidateRequest, _Whole] = OrderedDict()

    def refresh(self, uow: UnitOfWork) -> None:
        """Follow the store: all is read at first, then what changed; what was dropped is noticed.

        Ask before this transaction writes a host or provider: what it writes and then takes
        back would be kept as read.
        """
        # Each feed by itself: what one has read comes only once, whatever becomes of the other.
        if hosts := dict(self._roots(self._hosts.changes(uow.hosts))):
            self._take(hosts)
        if rows := self._rows.changes(uow.providers):
            self._take(rows)

    def candidates(self, request: CandidateRequest, limit: int, start: int = 0) -> Candidates:
        """Return up to `limit` ways to serve the request, from as many trees as there are.

        Each tree that can serve gives an equal share of the limit before any gives more. Trees
        come in the order of the names of their roots, from the `start`-th of those that may
        serve on, around the end: processes that pass numbers of their own (or chance) do not
        all run for the same host.
        """
        request = self._plain(request)
        found: dict[object, Candidate] = {}
        rows = self._rows_for(request)
        if len(rows) and limit > 0:
            rows = np.roll(rows, -(start % len(rows)))
            whole = self._of_single_providers(request, rows[:limit])
            if whole is not None:
                return whole
            for candidate in self._shared_out(request, rows, limit):
                # What takes of shared providers alone is found once for every tree they serve.
                # One provider for everything is told by its name, which is quickly hashed.
                found.setdefault(
                    _sole(candidate) or (candidate.allocations, candidate.mappings), candidate
                )
                if len(found) == limit:
                    break
        named = {
            name: self._providers[name]
            for identity, candidate in found.items()
            for name in ((identity,) if identity == candidate.root_id else _names(candidate))
        }
        providers = FrozenMap(named)
        return Candidates(tuple(found.values()), providers)

    def _of_single_providers(self, request: CandidateRequest, rows: Numbers) -> Candidates | None:
        """Return the candidates where each of these trees is one provider that takes everything."""
        if not self._columns.are_plain(request)[rows].all():
            return None
        if self._columns.forbids(request)[rows].any():
            return None
        one, trees = self._whole(request), self._columns.trees
        named = {(root := trees[row][0]).id: root for row in rows.tolist()}
        return Candidates(tuple(map(one.of, named)), MappingProxyType(named))

    def _roots(self, hosts: Mapping[str, Host | None]) -> Iterator[tuple[str, Provider | None]]:
        """Yield what became of the providers that these hosts are, by provider id."""
        for name, host in hosts.items():
            before = self._ids.pop(name, None)
            if before is not None:
                yield before, None
            if host is not None and host.provider_id:
                self._ids[name] = host.provider_id
                yield host.provider_id, root_of(host)

    def _take(self, changed: Mapping[str, Provider | None]) -> None:
        roots: dict[str, None] = {}
        sharing = []
        moved = False
        for provider_id, after in changed.items():
            before = self._providers.get(provider_id)
            moved |= self._is_another(before, after)
            for provider in filter(None, (before, after)):
                roots[root_id_of(provider)] = None
            self._replace(before, after)
            if after is not None and is_sharing(after):
                sharing.append(after)
        if moved:
            self._plant()
            return
        for root_id in roots:
            if root_id in self._row_of:
                self._columns.put(self._row_of[root_id], self._tree(root_id))
        for provider in sharing:
            self._columns.put_sharing(provider)

    def _is_another(self, before: Provider | None, after: Provider | None) -> bool:
        """Say whether rows, or who shares with which of them, may be others after this change.

        A child that comes or goes is neither, unless aggregates come or go with it.
        """
        kept = [provider for provider in (before, after) if provider is not None]
        if len(kept) == 1:
            one = kept[0]
            return one.parent_id is None or is_sharing(one) or bool(one.aggregates)
        return (
            len(
                {
                    (root_id_of(provider), is_sharing(provider), provider.aggregates)
                    for provider in kept
                }
            )
            > 1
        )

    def _replace(self, before: Provider | None, after: Provider | None) -> None:
        if before is not None:
            members = self._members[root_id_of(before)]
            members.discard(before.id)
            if not members:
                del self._members[root_id_of(before)]
            del self._providers[before.id]
        if after is not None:
            self._members.setdefault(root_id_of(after), set()).add(after.id)
            self._providers[after.id] = after

    def _tree(self, root_id: str) -> Providers:
        """Return the providers of a tree, parents first."""
        members = self._members[root_id]
        if len(members) == 1:
            return (self._providers[root_id],)
        tree = parents_first(self._providers[member] for member in members)
        # One whose parent has not been read yet has no place above the root.
        return tuple(sorted(tree, key=lambda item: item.id != root_id))

    def _plant(self) -> None:
        """Give every tree a row, and find out who shares with which."""
        # A child may be read before its root: without one there is no tree yet.
        roots = [self._providers[member] for member in self._members if member in self._providers]
        roots.sort(key=lambda root: root.name)
        self._row_of = {provider.id: row for row, provider in enumerate(roots)}
        trees = [self._tree(root.id) for root in roots]
        within: dict[str, dict[int, None]] = {}
        for row, tree in enumerate(trees):
            for aggregate in frozenset().union(*(provider.aggregates for provider in tree)):
                within.setdefault(aggregate, {})[row] = None
        lent, self._sharing = {}, [[] for _ in trees]
        for provider in sorted(
            filter(is_sharing, self._providers.values()), key=lambda provider: provider.name
        ):
            own = self._row_of.get(root_id_of(provider))
            rows = sorted(
                {row for name in provider.aggregates for row in within.get(name, ())} - {own}
            )
            lent[provider.id] = (provider, np.array(rows, np.int64))
            for row in rows:
                self._sharing[row].append(provider.id)
        self._columns = ProviderColumns(trees, lent)
        self._refused.clear()
        self._wholes.clear()

    def _rows_for(self, request: CandidateRequest) -> Numbers:
        mask = self._columns.may_serve(request)
        if request in self._refused:
            self._refused.move_to_end(request)
            mask &= self._refused[request] != self._columns.ticks
        for group in request.groups:
            if group.in_tree is not None and not self._lends(group.in_tree):
                row = self._row_of.get(group.in_tree, -1)
                mask &= np.arange(len(mask)) == row
        rows: Numbers = np.flatnonzero(mask)
        return rows

    def _lends(self, root_id: str) -> bool:
        """Say whether a tree has providers that serve other trees, too."""
        members = self._members.get(root_id, ())
        return any(is_sharing(self._providers[member]) for member in members)

    def _shared_out(
        self, request: CandidateRequest, rows: Numbers, limit: int
    ) -> Iterator[Candidate]:
        """Yield candidates: of every tree its share, then of each in turn all that are left."""
        share = max(1, limit // len(rows))
        plain, forbids = self._columns.are_plain(request), self._columns.forbids(request)
        whole = self._whole(request)
        more = []
        for row in rows.tolist():
            if plain[row]:
                if not forbids[row]:
                    yield whole.of(self._columns.trees[row][0].id)
                continue
            count = 0
            for candidate in islice(self._exactly(request, row), share):
                count += 1
                yield candidate
            if count == share:
                more.append(row)
            elif not count:
                self._refuse(request, row)
        for row in more:
            yield from islice(self._exactly(request, row), share, None)

    def _whole(self, request: CandidateRequest) -> _Whole:
        found = self._wholes.setdefault(request, _Whole(request))
        self._wholes.move_to_end(request)
        if len(self._wholes) > WHOLES_AT_MOST:
            self._wholes.popitem(last=False)
        return found

    def _exactly(self, request: CandidateRequest, row: int) -> Iterator[Candidate]:
        own = self._columns.trees[row]
        sharing = tuple(self._providers[name] for name in self._sharing[row])
        roots = {
            root_id: self._providers[root_id]
            for root_id in map(root_id_of, sharing)
            if root_id in self._providers
        }
        return candidates(Tree(own, sharing, roots), request)

    def _refuse(self, request: CandidateRequest, row: int) -> None:
        """Remember that a tree, as it is now, has nothing for a request."""
        if request not in self._refused:
            self._refused[request] = np.full(len(self._columns), -1, np.int64)
            if len(self._refused) > REFUSALS_AT_MOST:
                self._refused.popitem(last=False)
        self._refused[request][row] = self._columns.ticks[row]

    def _plain(self, request: CandidateRequest) -> CandidateRequest:
        """Return the request with trees named by their roots, as a value that can be a key."""
        return replace(request, groups=tuple(map(self._plain_group, request.groups)))

    def _plain_group(self, group: RequestGroup) -> RequestGroup:
        known = self._providers.get(group.in_tree or "")
        in_tree = group.in_tree if known is None else root_id_of(known)
        return replace(group, resources=FrozenMap(group.resources), in_tree=in_tree)


class _Whole:
    """Candidates of trees of one provider: it takes everything, whatever is in use of it.

    They are kept: what asks again for as many as there are pays for none of them again.
    """

    def __init__(self, request: CandidateRequest) -> None:
        total: dict[str, int] = {}
        for group in request.groups:
            for name, amount in group.resources.items():
                total[name] = total.get(name, 0) + amount
        self._total = FrozenMap(total)
        self._suffixes = [group.suffix for group in request.groups]
        self._made: dict[str, Candidate] = {}

    def of(self, provider_id: str) -> Candidate:
        made = self._made.get(provider_id)
        if made is None:
            mappings = FrozenMap(dict.fromkeys(self._suffixes, (provider_id,)))
            allocations = FrozenMap({provider_id: self._total})
            made = self._made[provider_id] = Candidate(allocations, mappings, provider_id)
        return made


def _sole(candidate: Candidate) -> str | None:
    """Return the one provider that serves everything, if one does."""
    if len(candidate.allocations) != 1:
        return None
    (only,) = candidate.allocations
    alone = (only,)
    return only if all(served == alone for served in candidate.mappings.values()) else None


def _names(candidate: Candidate) -> Iterator[str]:
    yield candidate.root_id
    yield from candidate.allocations
    for served in candidate.mappings.values():
        yield from served
