"""Which ways there are to serve a request from one tree of providers (pure, exact, lazy).

The rules are those that clients of the Placement API know:

- The group without a suffix takes each class whole from any one provider; those used meet the
  required traits together, and none of them has a forbidden one. Every other group has one
  provider for all that it asks.
- Groups that land on one provider are charged together: their sum is limited by what is left
  and by `max_unit`; `min_unit` and `step_size` are asked of each group alone.
- With `isolate` no two groups with suffixes share a provider, those without resources included;
  the group without a suffix may share with any.
- `member_of` of a group with a suffix is asked of its provider; of the group without, of the
  provider or of the root of its tree: whatever aggregates a root is in, its tree is in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from conductor.placement.candidates.assignment_search import Item, Problem, ways
from conductor.placement.providers import SHARING, Resources
from conductor.placement.request_groups import UNNUMBERED, Candidate, CandidateRequest, RequestGroup
from conductor.store.records import Provider
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
    """Yield the ways to serve a request from a tree, each once, as they are found.

    The first few cost a few: no product of choices is ever built. A tree whose packing is too
    hard to decide (see `assigning.STEPS_AT_MOST`) ends early.
    """
    if not request.root_traits.met_by(tree.root.traits):
        return
    asks = tuple(_asks(request.groups))
    problem = _problem(tree, request, asks)
    if any(not item.places for item in problem.items):
        return
    naming = _Naming(tree, asks)
    for places in ways(problem):
        yield naming.candidate(places)


@dataclass(frozen=True, slots=True)
class _Ask:
    """What is served whole by one provider: a group with a suffix, or a class of that without."""

    group: RequestGroup
    resources: Resources


def _asks(groups: Iterable[RequestGroup]) -> Iterator[_Ask]:
    for group in groups:
        if group.suffix != UNNUMBERED:
            yield _Ask(group, group.resources)
        else:
            for name, amount in group.resources.items():
                yield _Ask(group, {name: amount})


def _problem(tree: Tree, request: CandidateRequest, asks: Sequence[_Ask]) -> Problem:
    providers = tree.providers
    classes = dict.fromkeys(name for ask in asks for name in ask.resources)
    kinds = {name: kind for kind, name in enumerate(classes)}
    loose = next((group for group in request.groups if group.suffix == UNNUMBERED), None)
    by_suffix = {ask.group.suffix: 1 << at for at, ask in enumerate(asks)}
    numbered = sum(mask for suffix, mask in by_suffix.items() if suffix != UNNUMBERED)
    rooms = {name: tuple(headroom_of(provider, name) for provider in providers) for name in kinds}
    items = tuple(
        Item(
            places=_mask(
                _has_room(ask, provider, rooms, place) and _is_meant(tree, ask.group, provider)
                for place, provider in enumerate(providers)
            ),
            takes=tuple(sorted((kinds[name], amount) for name, amount in ask.resources.items())),
            marks=ask.group is loose,
        )
        for ask in asks
    )
    wanted = [] if loose is None else [*map(_one, loose.traits.required), *loose.traits.any_of]
    return Problem(
        count=len(providers),
        items=items,
        rooms=tuple(rooms.values()),
        marks=tuple(
            _mask(bool(provider.traits & one_of) for one_of in wanted) for provider in providers
        ),
        owed=(1 << len(wanted)) - 1,
        apart=numbered if request.policy == "isolate" else 0,
        families=tuple(
            members
            for suffixes in request.same_subtree
            if (members := sum(by_suffix.get(suffix, 0) for suffix in suffixes))
        ),
        parents=_parents(providers),
    )


def _has_room(
    ask: _Ask, provider: Provider, rooms: Mapping[str, tuple[int, ...]], place: int
) -> bool:
    """Say whether a provider has room for this, were nothing else asked of it."""
    for name, amount in ask.resources.items():
        if amount > rooms[name][place]:
            return False
        inventory = provider.inventories.get(name)
        if inventory is None or not inventory.takes(amount):
            return False
    return True


def _is_meant(tree: Tree, group: RequestGroup, provider: Provider) -> bool:
    """Say whether a provider is one that a group may be served by."""
    traits = group.traits
    if traits.forbidden & provider.traits:
        return False
    if group.suffix != UNNUMBERED and not traits.met_by(provider.traits):
        return False
    return _is_placed(tree, group, provider)


def _is_placed(tree: Tree, group: RequestGroup, provider: Provider) -> bool:
    """Say whether a provider is in the aggregates, and in the tree, that a group asks for."""
    if group.in_tree is not None and group.in_tree not in _names_of_tree(tree, provider):
        return False
    if not group.member_of and not group.not_member_of:
        return True
    known = [provider.aggregates]
    if group.suffix == UNNUMBERED:
        known.append(tree.root_of(provider).aggregates)
    if any(group.not_member_of & known_name for known_name in known):
        return False
    return any(all(one_of & known_name for one_of in group.member_of) for known_name in known)


def _names_of_tree(tree: Tree, provider: Provider) -> frozenset[str]:
    root_id = root_id_of(provider)
    known = tree.providers
    return frozenset(known_name.id for known_name in known if root_id_of(known_name) == root_id) | {
        root_id
    }


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

    def __init__(self, tree: Tree, asks: Sequence[_Ask]) -> None:
        self._ids = [provider.id for provider in tree.providers]
        self._root_id = tree.root.id
        self._asks = asks
        self._suffixes = list(dict.fromkeys(ask.group.suffix for ask in asks))
        self._suffix_of = [self._suffixes.index(ask.group.suffix) for ask in asks]
        self._sums: dict[int, Resources | None] = {}
        self._users: dict[int, tuple[str, ...]] = {}

    def candidate(self, places: Sequence[int]) -> Candidate:
        """Return the candidate in which each ask has this place."""
        served: dict[int, int] = {}
        users = [0] * len(self._suffixes)
        for at, place in enumerate(places):
            served[place] = served.get(place, 0) | 1 << at
            users[self._suffix_of[at]] |= 1 << place
        allocations = {
            self._ids[place]: resources
            for place, asks in served.items()
            if (resources := self._sum(asks)) is not None
        }
        mappings = {
            suffix: self._names(mask) for suffix, mask in zip(self._suffixes, users, strict=True)
        }
        return Candidate(FrozenMap(allocations), FrozenMap(mappings), self._root_id)

    def _sum(self, asks: int) -> Resources | None:
        """Return what these asks take together, nothing where that is nothing."""
        if asks not in self._sums:
            total: dict[str, int] = {}
            for at, ask in enumerate(self._asks):
                if asks >> at & 1:
                    for name, amount in ask.resources.items():
                        total[name] = total.get(name, 0) + amount
            self._sums[asks] = FrozenMap(total) if total else None
        return self._sums[asks]

    def _names(self, mask: int) -> tuple[str, ...]:
        if mask not in self._users:
            names = (name for place, name in enumerate(self._ids) if mask >> place & 1)
            self._users[mask] = tuple(sorted(names))
        return self._users[mask]
