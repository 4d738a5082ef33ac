"""Allocation candidates of one tree of providers, one by one (pure, exact, lazy).

1. Split the request into parts that one provider serves whole: a group with a suffix, a class of
   the group without. O(parts).
2. Turn parts into items and providers into places: which provider alone could serve which part,
   by capacity, traits and aggregates. O(parts * providers).
3. Search assignments of parts to providers (`assignment_search`, backtracking; exponential at
   worst, limited in steps), and name each as a candidate. O(parts) a candidate.

The rules are those that clients of the Placement API know:

- The group without a suffix takes each class whole from any one provider; those used meet the
  required traits together, and none of them has a forbidden one. Every other group has one
  provider for all that it requests.
- Groups that land on one provider are charged together: their sum is limited by what is left
  and by `max_unit`; `min_unit` and `step_size` apply to each group alone.
- With `isolate` no two groups with suffixes share a provider, those without resources included;
  the group without a suffix may share with any.
- `member_of` of a group with a suffix is asked of its provider; of the group without, of the
  provider or of the root of its tree: whatever aggregates a root is in, its tree is in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from conductor.placement.candidates.assignment_problem import Item, Problem
from conductor.placement.candidates.assignment_search import assignments
from conductor.placement.providers import SHARING, Resources
from conductor.placement.request_groups import UNNUMBERED, Candidate, CandidateRequest, RequestGroup
from conductor.store import Provider
from models.hardware import FrozenMap


@dataclass(frozen=True, slots=True)
class Tree:
    """Providers that can serve one consumer together.

    `own` are those of one tree, its root first; `sharing` those of other trees that serve it
    too. `roots` has the root of every sharing provider by its root's id, where it is another.
    """

    own: tuple[Provider, ...]
    sharing: tuple[Provider, ...] = ()
    roots: Mapping[str, Provider] = FrozenMap({})

    @property
    def root(self) -> Provider:
        """The provider without a parent."""
        return self.own[0]

    @property
    def providers(self) -> tuple[Provider, ...]:
        """All of them, those of the tree first."""
        return self.own + self.sharing

    def root_of(self, provider: Provider) -> Provider:
        """Return the root of the tree that a provider is in: this one's, or a sharing one's."""
        root_id = root_id_of(provider)
        if root_id == root_id_of(self.root):
            return self.root
        return self.roots.get(root_id, provider)


def root_id_of(provider: Provider) -> str:
    """Return the id of the root of a provider's tree."""
    return provider.root_id or provider.id


def is_sharing(provider: Provider) -> bool:
    """Say whether a provider serves other trees."""
    return SHARING in provider.traits


def serves(sharing: Provider, own: Iterable[Provider]) -> bool:
    """Say whether a sharing provider serves a tree: it has an aggregate in common with a member."""
    return any(sharing.aggregates & provider.aggregates for provider in own)


def headroom_of(provider: Provider, resource_class: str) -> int:
    """Return how much one consumer can still have of a class; never negative."""
    inventory = provider.inventories.get(resource_class)
    if inventory is None:
        return 0
    used = provider.used.get(resource_class, 0)
    return max(0, min(inventory.capacity - used, inventory.most))


def candidates(tree: Tree, request: CandidateRequest) -> Iterator[Candidate]:
    """Yield the candidates to serve a request from a tree, each once, as they are found.

    The first few cost little: no product of choices is ever built. A tree whose packing is too
    hard to decide (see `assignment_search.STEPS_AT_MOST`) ends early.
    """
    if not request.root_traits.met_by(tree.root.traits):
        return
    parts = tuple(_parts(request.groups))
    problem = _problem(tree, request, parts)
    if any(not item.places for item in problem.items):
        return
    naming = _Naming(tree, parts)
    for places in assignments(problem):
        yield naming.candidate(places)


@dataclass(frozen=True, slots=True)
class _Part:
    """What is served whole by one provider: a group with a suffix, or a class of that without."""

    group: RequestGroup
    resources: Resources


def _parts(groups: Iterable[RequestGroup]) -> Iterator[_Part]:
    for group in groups:
        if group.suffix != UNNUMBERED:
            yield _Part(group, group.resources)
        else:
            for name, amount in group.resources.items():
                yield _Part(group, {name: amount})


def _problem(tree: Tree, request: CandidateRequest, parts: Sequence[_Part]) -> Problem:
    providers = tree.providers
    classes = dict.fromkeys(name for part in parts for name in part.resources)
    pools = {name: pool for pool, name in enumerate(classes)}
    loose = next((group for group in request.groups if group.suffix == UNNUMBERED), None)
    by_suffix = {part.group.suffix: 1 << at for at, part in enumerate(parts)}
    numbered = sum(mask for suffix, mask in by_suffix.items() if suffix != UNNUMBERED)
    free = {name: tuple(headroom_of(provider, name) for provider in providers) for name in pools}
    items = tuple(
        Item(
            places=_mask(
                _has_capacity(part, provider, free, place)
                and _is_allowed(tree, part.group, provider)
                for place, provider in enumerate(providers)
            ),
            requests=tuple(
                sorted((pools[name], amount) for name, amount in part.resources.items())
            ),
            covers=part.group is loose,
        )
        for part in parts
    )
    wanted = [] if loose is None else [*map(_one, loose.traits.required), *loose.traits.any_of]
    return Problem(
        count=len(providers),
        items=items,
        free=tuple(free.values()),
        traits=tuple(
            _mask(bool(provider.traits & one_of) for one_of in wanted) for provider in providers
        ),
        uncovered=(1 << len(wanted)) - 1,
        apart=numbered if request.policy == "isolate" else 0,
        subtrees=tuple(
            members
            for suffixes in request.same_subtree
            if (members := sum(by_suffix.get(suffix, 0) for suffix in suffixes))
        ),
        parents=_parents(providers),
    )


def _has_capacity(
    part: _Part, provider: Provider, free: Mapping[str, tuple[int, ...]], place: int
) -> bool:
    """Say whether a provider alone has capacity for this part."""
    for name, amount in part.resources.items():
        if amount > free[name][place]:
            return False
        inventory = provider.inventories.get(name)
        if inventory is None or not inventory.takes(amount):
            return False
    return True


def _is_allowed(tree: Tree, group: RequestGroup, provider: Provider) -> bool:
    """Say whether a provider is one that a group may be served by."""
    traits = group.traits
    if traits.forbidden & provider.traits:
        return False
    if group.suffix != UNNUMBERED and not traits.met_by(provider.traits):
        return False
    return _is_in_place(tree, group, provider)


def _is_in_place(tree: Tree, group: RequestGroup, provider: Provider) -> bool:
    """Say whether a provider is in the aggregates, and in the tree, that a group asks for."""
    if group.in_tree is not None and group.in_tree not in _names_of_tree(tree, provider):
        return False
    if not group.member_of and not group.not_member_of:
        return True
    known = [provider.aggregates]
    if group.suffix == UNNUMBERED:
        known.append(tree.root_of(provider).aggregates)
    if any(group.not_member_of & aggregates for aggregates in known):
        return False
    return any(all(one_of & aggregates for one_of in group.member_of) for aggregates in known)


def _names_of_tree(tree: Tree, provider: Provider) -> frozenset[str]:
    root_id = root_id_of(provider)
    known = tree.providers
    return frozenset(member.id for member in known if root_id_of(member) == root_id) | {root_id}


def _parents(providers: Sequence[Provider]) -> tuple[int | None, ...]:
    """Return the number of each one's parent, nothing where that is not among them."""
    at = {provider.id: place for place, provider in enumerate(providers)}
    return tuple(
        None if provider.parent_id is None else at.get(provider.parent_id) for provider in providers
    )


def _mask(flags: Iterable[bool]) -> int:
    return sum(1 << place for place, flag in enumerate(flags) if flag)


def _one(trait: str) -> frozenset[str]:
    return frozenset((trait,))


class _Naming:
    """Turns places into candidates; what many have in common is made once."""

    def __init__(self, tree: Tree, parts: Sequence[_Part]) -> None:
        self._ids = [provider.id for provider in tree.providers]
        self._root_id = tree.root.id
        self._parts = parts
        self._suffixes = list(dict.fromkeys(part.group.suffix for part in parts))
        self._suffix_of = [self._suffixes.index(part.group.suffix) for part in parts]
        self._sums: dict[int, Resources | None] = {}
        self._users: dict[int, tuple[str, ...]] = {}

    def candidate(self, places: Sequence[int]) -> Candidate:
        """Return the candidate in which each part has this place."""
        served: dict[int, int] = {}
        users = [0] * len(self._suffixes)
        for at, place in enumerate(places):
            served[place] = served.get(place, 0) | 1 << at
            users[self._suffix_of[at]] |= 1 << place
        allocations = {
            self._ids[place]: resources
            for place, parts in served.items()
            if (resources := self._sum(parts)) is not None
        }
        mappings = {
            suffix: self._names(mask) for suffix, mask in zip(self._suffixes, users, strict=True)
        }
        return Candidate(FrozenMap(allocations), FrozenMap(mappings), self._root_id)

    def _sum(self, parts: int) -> Resources | None:
        """Return what these parts request together, or nothing."""
        if parts not in self._sums:
            total: dict[str, int] = {}
            for at, part in enumerate(self._parts):
                if parts >> at & 1:
                    for name, amount in part.resources.items():
                        total[name] = total.get(name, 0) + amount
            self._sums[parts] = FrozenMap(total) if total else None
        return self._sums[parts]

    def _names(self, mask: int) -> tuple[str, ...]:
        if mask not in self._users:
            names = (name for place, name in enumerate(self._ids) if mask >> place & 1)
            self._users[mask] = tuple(sorted(names))
        return self._users[mask]
