"""Trees of providers by row, with what requests ask of them kept in arrays.

A column holds a number for every tree: what is left of a class, whether a trait is there. It is
computed when first asked for and kept current as trees change. Columns say what no tree can do
without; what a tree can do is said by `candidates` alone, for few of them, apart from trees of
one provider, of which columns say all there is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from conductor.placement.candidates.candidate_search import headroom_of
from conductor.placement.request_groups import UNNUMBERED, CandidateRequest, RequestGroup, TraitRule
from conductor.store import Provider

Numbers: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
Providers: TypeAlias = tuple[Provider, ...]
Reading: TypeAlias = Callable[[Providers, str], int]

COLUMNS_AT_MOST: Final = 64
"""Users name classes and traits as they please: only columns asked for lately are kept."""


class ProviderColumns:
    """The providers of every tree by row, root first, and who shares with which rows.

    Rows are stable; for others new columns are made.
    """

    def __init__(
        self, trees: Sequence[Providers], sharing: Mapping[str, tuple[Provider, Numbers]]
    ) -> None:
        self.trees = list(trees)
        self.ticks: Numbers = np.zeros(len(self.trees), np.int64)
        self.tick = 0
        self._sharing = dict(sharing)
        self._shared = np.zeros(len(self.trees), np.bool_)
        for _, rows in self._sharing.values():
            self._shared[rows] = True
        self._columns: OrderedDict[tuple[Reading, str], Numbers] = OrderedDict()
        self._lent: OrderedDict[tuple[Reading, str], Numbers] = OrderedDict()

    def __len__(self) -> int:
        return len(self.trees)

    def put(self, row: int, tree: Providers) -> None:
        """Replace a tree by its newer self."""
        self.trees[row] = tree
        self.tick += 1
        self.ticks[row] = self.tick
        for (reading, name), column in self._columns.items():
            column[row] = reading(tree, name)

    def put_sharing(self, provider: Provider) -> None:
        """Replace a sharing provider by its newer self; those it shares with stay the same."""
        _, rows = self._sharing[provider.id]
        self._sharing[provider.id] = (provider, rows)
        self.tick += 1
        self.ticks[rows] = self.tick
        self._lent.clear()

    def may_serve(self, request: CandidateRequest) -> Mask:
        """Return which rows may serve a request: all that can are among them."""
        mask = self._by_traits(request)
        for name, amounts in _amounts(request).items():
            mask &= self._with_lent(_most, name) >= max(amounts)
            if len(amounts) > 1:
                mask &= self._with_lent(_together, name) >= sum(amounts)
        return mask

    def are_plain(self, request: CandidateRequest) -> Mask:
        """Return which rows serve a request exactly if `may_serve` and `forbids` say so.

        Those are trees of one provider, with which nobody shares, that has no units and steps to
        obey, where the request asks for nothing that depends on more than room and traits.
        """
        numbered = [group for group in request.groups if group.suffix != UNNUMBERED]
        apart = request.policy == "isolate" and len(numbered) > 1
        if apart or any(map(_is_particular, request.groups)):
            return np.zeros(len(self.trees), np.bool_)
        plain: Mask = (self._column(_size, "") == 1) & ~self._shared
        for name in _amounts(request):
            plain &= self._column(_is_plain, name) == 1
        return plain

    def forbids(self, request: CandidateRequest) -> Mask:
        """Return which rows have a trait somewhere that a group forbids."""
        forbidden = frozenset().union(*(group.traits.forbidden for group in request.groups))
        return self._some(_has_trait, forbidden)

    def _by_traits(self, request: CandidateRequest) -> Mask:
        mask = np.ones(len(self.trees), np.bool_)
        root = request.root_traits
        self._narrow(mask, root, _root_has_trait)
        if root.forbidden:
            mask &= ~self._some(_root_has_trait, root.forbidden)
        for group in request.groups:
            self._narrow(mask, group.traits, _has_trait)
        return mask

    def _narrow(self, mask: Mask, rule: TraitRule, reading: Reading) -> None:
        """Leave in a mask of the caller's the rows that have what is required."""
        for trait in sorted(rule.required):
            mask &= self._some(reading, (trait,))
        for one_of in rule.any_of:
            mask &= self._some(reading, one_of)

    def _some(self, reading: Reading, traits: Iterable[str]) -> Mask:
        found = np.zeros(len(self.trees), np.bool_)
        for trait in sorted(traits):
            of = self._column if reading is _root_has_trait else self._with_lent
            found |= of(reading, trait) > 0
        return found

    def _column(self, reading: Reading, name: str) -> Numbers:
        key = (reading, name)
        if key not in self._columns:
            numbers = (reading(tree, name) for tree in self.trees)
            self._columns[key] = np.fromiter(numbers, np.int64, len(self.trees))
            if len(self._columns) > COLUMNS_AT_MOST:
                self._columns.popitem(last=False)
        self._columns.move_to_end(key)
        return self._columns[key]

    def _with_lent(self, reading: Reading, name: str) -> Numbers:
        """Return a column that counts providers that share, too."""
        own = self._column(reading, name)
        if not self._sharing:
            return own
        key = (reading, name)
        if key not in self._lent:
            self._lent[key] = self._read_lent(reading, name)
            if len(self._lent) > COLUMNS_AT_MOST:
                self._lent.popitem(last=False)
        lent = self._lent[key]
        return own + lent if reading is _together else np.maximum(own, lent)

    def _read_lent(self, reading: Reading, name: str) -> Numbers:
        lent = np.zeros(len(self.trees), np.int64)
        for provider, rows in self._sharing.values():
            number = reading((provider,), name)
            if reading is _together:
                lent[rows] += number
            elif number:
                lent[rows] = np.maximum(lent[rows], number)
        return lent


def _amounts(request: CandidateRequest) -> Mapping[str, list[int]]:
    """Return by class what each group asks for."""
    amounts: dict[str, list[int]] = {}
    for group in request.groups:
        for name, amount in group.resources.items():
            amounts.setdefault(name, []).append(amount)
    return amounts


def _is_particular(group: RequestGroup) -> bool:
    """Say whether more than room and traits matters to a group, or nothing else does."""
    elsewhere = group.member_of or group.not_member_of or group.in_tree
    return bool(elsewhere) or not group.resources


def _most(tree: Providers, name: str) -> int:
    return max(headroom_of(provider, name) for provider in tree)


def _together(tree: Providers, name: str) -> int:
    return sum(headroom_of(provider, name) for provider in tree)


def _has_trait(tree: Providers, name: str) -> int:
    return int(any(name in provider.traits for provider in tree))


def _root_has_trait(tree: Providers, name: str) -> int:
    return int(name in tree[0].traits)


def _size(tree: Providers, _: str) -> int:
    return len(tree)


def _is_plain(tree: Providers, name: str) -> int:
    inventory = tree[0].inventories.get(name)
    return int(inventory is not None and inventory.min_unit <= 1 and inventory.step_size == 1)
