"""What candidates there are, by trying every provider for everything; shares no code with ours."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from conductor.placement.request_groups import CandidateRequest, RequestGroup, TraitRule
from conductor.store import Inventory, Provider

Way = tuple[frozenset[tuple[str, str, int]], frozenset[tuple[str, frozenset[str]]]]
"""Allocations as (provider, class, amount), mappings as (suffix, providers)."""


def all_ways(providers: Sequence[Provider], request: CandidateRequest) -> set[Way]:
    """Return every way to serve a request from a world of providers."""
    by_id = {provider.id: provider for provider in providers}
    return {
        way
        for root in providers
        if root.parent_id is None and _meets(root.traits, request.root_traits)
        for way in _ways_from(root, by_id, request)
    }


def _ways_from(
    root: Provider, by_id: Mapping[str, Provider], request: CandidateRequest
) -> Iterator[Way]:
    own = [provider for provider in by_id.values() if _root(provider, by_id) is root]
    neighbours = frozenset().union(*(provider.aggregates for provider in own))
    usable = own + [
        provider
        for provider in by_id.values()
        if provider not in own
        and "MISC_SHARES_VIA_AGGREGATE" in provider.traits
        and provider.aggregates & neighbours
    ]
    parts: list[tuple[RequestGroup, dict[str, int]]] = []
    for group in request.groups:
        if group.suffix:
            parts.append((group, dict(group.resources)))
        else:
            parts += [(group, {name: amount}) for name, amount in group.resources.items()]
    for chosen in itertools.product(usable, repeat=len(parts)):
        placed = list(zip(parts, chosen, strict=True))
        if parts and _holds(placed, by_id, request):
            yield _described(placed)


Placed = list[tuple[tuple[RequestGroup, dict[str, int]], Provider]]


def _holds(placed: Placed, by_id: Mapping[str, Provider], request: CandidateRequest) -> bool:
    return (
        all(_part_fits(group, amounts, provider, by_id) for (group, amounts), provider in placed)
        and _sums_fit(placed)
        and _loose_traits(placed, request)
        and _apart(placed, request)
        and all(_one_above(placed, suffixes, by_id) for suffixes in request.same_subtree)
    )


def _part_fits(
    group: RequestGroup, amounts: dict[str, int], provider: Provider, by_id: Mapping[str, Provider]
) -> bool:
    if group.suffix and not _meets(provider.traits, group.traits):
        return False
    if provider.traits & group.traits.forbidden:
        return False
    root = _root(provider, by_id)
    if group.in_tree and root is not _root(by_id[group.in_tree], by_id):
        return False
    counted = [provider.aggregates] if group.suffix else [provider.aggregates, root.aggregates]
    if any(known & group.not_member_of for known in counted):
        return False
    if not any(all(known & one_of for one_of in group.member_of) for known in counted):
        return False
    for name, amount in amounts.items():
        has = provider.inventories.get(name)
        if has is None or amount < has.min_unit or amount % has.step_size:
            return False
    return True


def _sums_fit(placed: Placed) -> bool:
    sums: dict[tuple[str, str], int] = {}
    for (_, amounts), item in placed:
        for name, amount in amounts.items():
            sums[item.id, name] = sums.get((item.id, name), 0) + amount
    providers = {item.id: item for _, item in placed}
    return all(
        _fits(providers[provider].inventories[name], amount, providers[provider].used.get(name, 0))
        for (provider, name), amount in sums.items()
    )


def _fits(has: Inventory, amount: int, used: int) -> bool:
    if has.max_unit is not None and amount > has.max_unit:
        return False
    return used + amount <= (has.total - has.reserved) * Fraction(str(has.ratio))


def _loose_traits(placed: Placed, request: CandidateRequest) -> bool:
    for group in request.groups:
        if not group.suffix:
            used = [provider.traits for (part, _), provider in placed if part is group]
            together: frozenset[str] = frozenset().union(*used)
            wants_all, wants_any = group.traits.required, group.traits.any_of
            if wants_all - together or not all(one_of & together for one_of in wants_any):
                return False
    return True


def _apart(placed: Placed, request: CandidateRequest) -> bool:
    numbered = [provider.id for (group, _), provider in placed if group.suffix]
    return request.policy == "none" or len(set(numbered)) == len(numbered)


def _one_above(placed: Placed, suffixes: frozenset[str], by_id: Mapping[str, Provider]) -> bool:
    meant = [provider for (group, _), provider in placed if group.suffix in suffixes]
    return any(all(head.id in _line(provider, by_id) for provider in meant) for head in meant)


def _line(provider: Provider, by_id: Mapping[str, Provider]) -> list[str]:
    line = [provider.id]
    while (parent := by_id[line[-1]].parent_id) is not None:
        line.append(parent)
    return line


def _root(provider: Provider, by_id: Mapping[str, Provider]) -> Provider:
    return by_id[_line(provider, by_id)[-1]]


def _meets(traits: frozenset[str], rule: TraitRule) -> bool:
    return (
        rule.required <= traits
        and not rule.forbidden & traits
        and all(one_of & traits for one_of in rule.any_of)
    )


def _described(placed: Placed) -> Way:
    sums: dict[tuple[str, str], int] = {}
    mappings: dict[str, set[str]] = {}
    for (group, amounts), item in placed:
        mappings.setdefault(group.suffix, set()).add(item.id)
        for name, amount in amounts.items():
            sums[item.id, name] = sums.get((item.id, name), 0) + amount
    return (
        frozenset((provider, name, amount) for (provider, name), amount in sums.items()),
        frozenset((suffix, frozenset(ids)) for suffix, ids in mappings.items()),
    )
