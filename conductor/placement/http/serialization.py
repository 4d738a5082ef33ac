"""Values as the Placement API writes them, and back (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

from conductor.placement.http.http_client import Parameters
from conductor.placement.providers import SHARING, Consumer, Resources
from conductor.placement.request_groups import (
    UNNUMBERED,
    Candidate,
    CandidateRequest,
    Candidates,
    RequestGroup,
    TraitRule,
)
from conductor.store import Inventory, Provider
from models.hardware import FrozenMap

MOST: Final = 2**31 - 1
"""What the server writes for a `max_unit` that nobody gave."""

NOBODY: Final = "00000000-0000-0000-0000-000000000000"
"""Project or user of a consumer that has none: the server refuses an empty name."""


def inventories_json(inventories: Mapping[str, Inventory]) -> dict[str, Any]:
    """Return what a provider has, as `PUT …/inventories` takes it."""
    return {
        name: {
            "total": inventory.total,
            "reserved": inventory.reserved,
            "allocation_ratio": inventory.ratio,
            "min_unit": inventory.min_unit,
            "max_unit": MOST if inventory.max_unit is None else inventory.max_unit,
            "step_size": inventory.step_size,
        }
        for name, inventory in inventories.items()
    }


def inventories_of(body: Mapping[str, Any]) -> Mapping[str, Inventory]:
    """Return what a provider has, from `{class: {total, …}}`."""
    return FrozenMap({name: _inventory(item) for name, item in body.items()})


def consumer_json(consumer: Consumer, generation: int | None) -> dict[str, Any]:
    """Return what a consumer is to hold, as `POST /allocations` takes it; zeros are left out."""
    held = {
        provider_id: {"resources": amounts}
        for provider_id, resources in consumer.allocations.items()
        if (amounts := {name: amount for name, amount in resources.items() if amount})
    }
    return {
        "allocations": held,
        "project_id": consumer.project_id or NOBODY,
        "user_id": consumer.user_id or NOBODY,
        "consumer_generation": generation,
        "consumer_type": consumer.kind.upper(),
    }


def consumer_of(consumer_id: str, body: Mapping[str, Any]) -> Consumer:
    """Return a consumer from the answer to `GET /allocations/ID`."""
    held = {
        provider_id: FrozenMap(item["resources"])
        for provider_id, item in body["allocations"].items()
    }
    if not held:
        return Consumer(consumer_id)
    return Consumer(
        consumer_id,
        FrozenMap(held),
        somebody(body["project_id"]),
        somebody(body["user_id"]),
        body["consumer_type"].lower(),
        body["consumer_generation"],
    )


def somebody(name: str) -> str:
    """Return a project or user as we call it: empty where there is none."""
    return "" if name == NOBODY else name


def without_zeros(used: Resources) -> Resources:
    """Return what is in use, without the classes of which nothing is."""
    return FrozenMap({name: amount for name, amount in used.items() if amount})


def summed(usages: Mapping[str, Mapping[str, int]]) -> Resources:
    """Return usage by class from usage by consumer type."""
    total: Counter[str] = Counter()
    for usage in usages.values():
        total.update({name: used for name, used in usage.items() if name.isupper() and used})
    return FrozenMap(dict(total))


def trait_parameters(key: str, rule: TraitRule) -> Iterator[tuple[str, str]]:
    """Yield the parameters that ask for a rule about traits."""
    flat = [*sorted(rule.required), *(f"!{name}" for name in sorted(rule.forbidden))]
    if flat:
        yield key, ",".join(flat)
    for names in rule.any_of:
        yield key, f"in:{','.join(sorted(names))}"


def member_parameters(
    key: str, member_of: Iterable[frozenset[str]], not_member_of: frozenset[str] = frozenset()
) -> Iterator[tuple[str, str]]:
    """Yield the parameters that ask for aggregates: one of each set, none of the last."""
    for names in member_of:
        yield key, f"in:{','.join(sorted(names))}"
    if not_member_of:
        yield key, f"!in:{','.join(sorted(not_member_of))}"


def unmeetable(rule: TraitRule) -> bool:
    """Say whether no provider can meet the rule, whatever its traits; the server calls it bad."""
    return bool(rule.required & rule.forbidden) or any(
        names <= rule.forbidden for names in rule.any_of
    )


def root_rules(rule: TraitRule) -> list[TraitRule]:
    """Return rules without `any_of` of which a root meets at most one, and one where it meets all.

    The server knows no "any of" for roots: each of the rules is a question of its own.
    """
    found: list[TraitRule] = []
    for choice in product(*(sorted(names) for names in rule.any_of)):
        required = rule.required.union(choice)
        # Of several of a set that a root has, the first in the alphabet counts.
        before = (
            name
            for names, chosen in zip(rule.any_of, choice, strict=True)
            for name in names
            if name < chosen
        )
        forbidden = rule.forbidden.union(before)
        if not required & forbidden:
            found.append(TraitRule(required, (), forbidden))
    return found


def candidate_parameters(request: CandidateRequest, root: TraitRule, limit: int) -> Parameters:
    """Return the parameters of `GET /allocation_candidates`."""
    parameters = [pair for group in request.groups for pair in _group_parameters(group)]
    apart = sum(group.suffix != UNNUMBERED for group in request.groups) > 1
    # To one group alone the policy does not matter, but without `none` servers (16.0.0) let the
    # amounts of one candidate show up in others.
    parameters.append(("group_policy", request.policy if apart else "none"))
    parameters += [("same_subtree", ",".join(sorted(item))) for item in request.same_subtree]
    parameters += trait_parameters("root_required", root)
    return [*parameters, ("limit", str(limit))]


def candidates_of(body: Mapping[str, Any]) -> Candidates:
    """Return the candidates and providers of an answer to `GET /allocation_candidates`."""
    providers = {
        provider_id: _summarised(provider_id, item)
        for provider_id, item in body["provider_summaries"].items()
    }
    found = tuple(_candidate(item, providers) for item in body["allocation_requests"])
    return Candidates(found, providers)


def _group_parameters(group: RequestGroup) -> Iterator[tuple[str, str]]:
    suffix = group.suffix
    if group.resources:
        amounts = ",".join(f"{name}:{amount}" for name, amount in sorted(group.resources.items()))
        yield f"resources{suffix}", amounts
    yield from trait_parameters(f"required{suffix}", group.traits)
    yield from member_parameters(f"member_of{suffix}", group.member_of, group.not_member_of)
    if group.in_tree is not None:
        yield f"in_tree{suffix}", group.in_tree


def _candidate(body: Mapping[str, Any], providers: Mapping[str, Provider]) -> Candidate:
    allocations = {
        provider_id: FrozenMap(item["resources"])
        for provider_id, item in body["allocations"].items()
    }
    mappings = {suffix: tuple(ids) for suffix, ids in body["mappings"].items()}
    return Candidate(FrozenMap(allocations), FrozenMap(mappings), _root(mappings, providers))


def _root(mappings: Mapping[str, Sequence[str]], providers: Mapping[str, Provider]) -> str:
    """Return the root of the tree that a candidate is of: not that of one who only shares."""
    named = [providers[provider_id] for ids in mappings.values() for provider_id in ids]
    own = [provider for provider in named if SHARING not in provider.traits]
    return (own or named)[0].root_id


def _summarised(provider_id: str, body: Mapping[str, Any]) -> Provider:
    resources = body["resources"]
    return Provider(
        provider_id,
        name="",
        parent_id=body["parent_provider_uuid"],
        root_id=body["root_provider_uuid"],
        inventories=FrozenMap(
            {n: Inventory(resource["capacity"]) for n, resource in resources.items()}
        ),
        used=without_zeros({n: resource["used"] for n, resource in resources.items()}),
        traits=frozenset(body["traits"]),
    )


def _inventory(body: Mapping[str, Any]) -> Inventory:
    most = body["max_unit"]
    return Inventory(
        total=body["total"],
        reserved=body["reserved"],
        ratio=body["allocation_ratio"],
        min_unit=body["min_unit"],
        max_unit=None if most == MOST else most,
        step_size=body["step_size"],
    )
