"""The placement port on a real OpenStack Placement server, over HTTP.

Errors are told apart by status and error code, never by text. Where the server says less than
the port promises (who uses a provider, which class is short), it is read afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import os_traits
import tenacity
from typing_extensions import override

from conductor.placement.http import http_writes as writes
from conductor.placement.http import serialization as shapes
from conductor.placement.http.http_client import (
    ANY_OF_TRAITS,
    Answer,
    Parameters,
    PlacementClient,
    Question,
    unexpected,
)
from conductor.placement.http.http_queries import (
    STANDARD_CLASSES,
    PlacementQueries,
    moved_on,
    no_class,
    no_provider,
    no_trait,
)
from conductor.placement.ports import PlacementService, ProviderQuery
from conductor.placement.providers import Consumer, Reshaping, Resources, parents_first
from conductor.placement.request_groups import CandidateRequest, Candidates, TraitRule
from conductor.placement.validation import check_inventories, check_name
from conductor.store import Inventory, Provider
from models.errors import Rejected
from models.hardware import FrozenMap

_DUPLICATE_NAME: Final = "placement.duplicate_name"
_PROVIDER_IN_USE: Final = "placement.resource_provider.inuse"
_HAS_CHILDREN: Final = "placement.resource_provider.cannot_delete_parent"
_WAIT: Final = tenacity.wait_random_exponential(multiplier=0.02, max=1.0)


class HttpPlacement(PlacementService):
    """Asks a Placement server what the port promises, in any number of threads.

    `request_id` is of the operation that asks: the server logs it too.
    """

    def __init__(
        self,
        client: PlacementClient,
        *,
        request_id: str = "",
        wait: tenacity.wait.wait_base = _WAIT,
    ) -> None:
        self._server = PlacementQueries(client, request_id)
        self._wait = wait

    def on_behalf_of(self, request_id: str) -> HttpPlacement:
        """Return the same server, asked on behalf of this request id."""
        return HttpPlacement(self._server.client, request_id=request_id, wait=self._wait)

    def check_credentials(self) -> None:
        """Send a request that needs credentials; raises what `PlacementClient` does."""
        self._server.read("/resource_classes/VCPU")

    @override
    def provider(self, provider_id: str) -> Provider | None:
        return self._server.provider(provider_id)

    @override
    def providers(self, query: ProviderQuery) -> list[Provider]:
        if shapes.unmeetable(query.traits):
            return []
        self._must_know([query.traits])
        parameters = [
            *([("name", query.name)] if query.name is not None else ()),
            *([("in_tree", query.in_tree)] if query.in_tree is not None else ()),
            *shapes.trait_parameters("required", query.traits),
            *shapes.member_parameters("member_of", query.member_of),
        ]
        question = Question("GET", "/resource_providers", parameters)
        answer = self._send(question)
        if answer.status == 400:
            self._server.refuse_unknown_traits(_named(query.traits))
        found = map(self._server.whole, _body(question, answer)["resource_providers"])
        return parents_first([provider for provider in found if provider is not None])

    @override
    def ensure_provider(
        self, provider_id: str, name: str, parent_id: str | None = None
    ) -> Provider:
        there = self.provider(provider_id)
        if there is not None:
            return there
        check_name(name)
        wanted = {"uuid": provider_id, "name": name, "parent_provider_uuid": parent_id}
        question = Question("POST", "/resource_providers", (), wanted)
        answer = self._send(question)
        if answer.code == _DUPLICATE_NAME:
            there = self.provider(provider_id)
            if there is not None:
                return there
            raise self._name_in_use(provider_id, name)
        if answer.status == 400 and parent_id is not None and self.provider(parent_id) is None:
            raise no_provider(parent_id)
        made = _body(question, answer)
        return Provider(
            provider_id, name, parent_id, made["root_provider_uuid"], made["generation"]
        )

    def _name_in_use(self, provider_id: str, name: str) -> Rejected:
        """Say whose the name is, and how much is held of it: somebody has to decide."""
        owners = self.providers(ProviderQuery(name=name))
        owner = owners[0].id if owners else "one that is gone by now"
        held = len(self.consumers_of(owner)) if owners else 0
        message = (
            f"name is {name!r}: it belongs to provider {owner} with {held} consumers, and ours is "
            f"{provider_id}: rename or delete that one"
        )
        data = {"name": name, "provider": provider_id, "owner": owner, "consumers": held}
        return Rejected("provider_name_taken", message, key="name", **data)

    @override
    def delete_provider(self, provider_id: str) -> None:
        question = Question("DELETE", f"/resource_providers/{provider_id}")
        answer = self._send(question)
        if answer.status in (204, 404):
            return
        if answer.code == _PROVIDER_IN_USE:
            consumers = sorted(self.consumers_of(provider_id))
            message = f"resource provider {provider_id} is used by {len(consumers)} consumers"
            raise Rejected("provider_in_use", message, provider=provider_id, consumers=consumers)
        if answer.code == _HAS_CHILDREN:
            children = self._children(provider_id)
            message = f"resource provider {provider_id} has {len(children)} children"
            raise Rejected(
                "provider_has_children", message, provider=provider_id, children=children
            )
        raise unexpected(question, answer)

    @override
    def set_inventories(
        self, provider_id: str, inventories: Mapping[str, Inventory], generation: int
    ) -> Provider:
        check_inventories(inventories)
        body = {"inventories": shapes.inventories_json(inventories)}
        question = _put(provider_id, "inventories", body, generation)
        answer = self._send(question)
        if answer.code == writes.INVENTORY_IN_USE:
            found = self._server.inventory_in_use(provider_id, inventories)
            raise found or moved_on(f"provider {provider_id}")
        if answer.status == 400:
            self._server.refuse_unknown_classes(inventories)
        return self._written(provider_id, question, answer)

    @override
    def set_traits(self, provider_id: str, traits: Iterable[str], generation: int) -> Provider:
        names = sorted(set(traits))
        question = _put(provider_id, "traits", {"traits": names}, generation)
        answer = self._send(question)
        if answer.status == 400:
            self._server.refuse_unknown_traits(names)
        return self._written(provider_id, question, answer)

    @override
    def set_aggregates(
        self, provider_id: str, aggregates: Iterable[str], generation: int
    ) -> Provider:
        body = {"aggregates": sorted(set(aggregates))}
        question = _put(provider_id, "aggregates", body, generation)
        return self._written(provider_id, question, self._send(question))

    @override
    def ensure_classes(self, names: Iterable[str]) -> None:
        for name in sorted(set(names) - STANDARD_CLASSES):
            if self._server.send("PUT", f"/resource_classes/{name}").status not in (201, 204):
                raise no_class(name)

    @override
    def ensure_traits(self, names: Iterable[str]) -> None:
        for name in sorted(set(names) - set(os_traits.get_traits())):
            if self._server.send("PUT", f"/traits/{name}").status not in (201, 204):
                raise no_trait(name)

    @override
    def candidates(self, request: CandidateRequest, limit: int) -> Candidates:
        rules = [request.root_traits, *(group.traits for group in request.groups)]
        found = Candidates((), {})
        if any(map(shapes.unmeetable, rules)):
            return found
        self._must_know(group.traits for group in request.groups)
        for root in shapes.root_rules(request.root_traits):
            left = limit - len(found.found)
            if left > 0:
                parameters = shapes.candidate_parameters(request, root, left)
                more = self._candidates(request, parameters)
                found = Candidates(
                    (*found.found, *more.found), {**found.providers, **more.providers}
                )
        return found

    @override
    def consumer(self, consumer_id: str) -> Consumer:
        return self._server.consumer(consumer_id)

    @override
    def consumers_of(self, provider_id: str) -> Mapping[str, Resources]:
        question = Question("GET", f"/resource_providers/{provider_id}/allocations")
        answer = self._send(question)
        if answer.status == 404:
            raise no_provider(provider_id)
        held = _body(question, answer)["allocations"]
        return FrozenMap(
            {name: FrozenMap(allocation["resources"]) for name, allocation in held.items()}
        )

    @override
    def write(self, consumers: Sequence[Consumer]) -> None:
        writes.write(self._server, consumers, self._wait)

    @override
    def reshape(self, shapes: Sequence[Reshaping], consumers: Sequence[Consumer]) -> None:
        writes.reshape(self._server, shapes, consumers)

    @override
    def usages(self, project_id: str, user_id: str | None = None) -> Resources:
        parameters = [("project_id", project_id or shapes.NOBODY)]
        if user_id is not None:
            parameters.append(("user_id", user_id or shapes.NOBODY))
        return shapes.summed(self._server.read("/usages", parameters)["usages"])

    def _must_know(self, rules: Iterable[TraitRule]) -> None:
        if any(rule.any_of for rule in rules):
            self._server.client.must_speak(ANY_OF_TRAITS, "any of several traits")

    def _children(self, provider_id: str) -> list[str]:
        tree = self._server.read("/resource_providers", [("in_tree", provider_id)])
        return sorted(
            item["uuid"]
            for item in tree["resource_providers"]
            if item["parent_provider_uuid"] == provider_id
        )

    def _candidates(self, request: CandidateRequest, parameters: Parameters) -> Candidates:
        question = Question("GET", "/allocation_candidates", parameters)
        answer = self._send(question)
        if answer.status == 400:
            self._server.refuse_unknown_classes(
                name for group in request.groups for name in group.resources
            )
            rules = [request.root_traits, *(group.traits for group in request.groups)]
            self._server.refuse_unknown_traits(name for rule in rules for name in _named(rule))
        return shapes.candidates_of(_body(question, answer))

    def _written(self, provider_id: str, question: Question, answer: Answer) -> Provider:
        if answer.status == 404:
            raise no_provider(provider_id)
        if answer.status == 409:
            raise moved_on(f"provider {provider_id}")
        generation = _body(question, answer)["resource_provider_generation"]
        there = self.provider(provider_id)
        if there is None:
            raise no_provider(provider_id)
        return replace(there, generation=generation)

    def _send(self, question: Question) -> Answer:
        return self._server.send(question.method, question.path, question.parameters, question.body)


def _put(provider_id: str, part: str, body: Mapping[str, Any], generation: int) -> Question:
    path = f"/resource_providers/{provider_id}/{part}"
    return Question("PUT", path, (), {**body, "resource_provider_generation": generation})


def _body(question: Question, answer: Answer) -> Any:
    if answer.status not in (200, 201) or answer.body is None:
        raise unexpected(question, answer)
    return answer.body


def _named(rule: TraitRule) -> frozenset[str]:
    return rule.required.union(rule.forbidden, *rule.any_of)
