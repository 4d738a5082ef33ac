"""Queries to a Placement server that reads and writes have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import os_resource_classes

from conductor.placement.http import serialization as shapes
from conductor.placement.http.http_client import (
    Answer,
    Parameters,
    PlacementClient,
    Question,
    unexpected,
)
from conductor.placement.providers import Consumer
from conductor.store import Inventory, Provider
from models.errors import Conflict, Rejected

STANDARD_CLASSES: Final = frozenset(map(str, os_resource_classes.STANDARDS))


class PlacementQueries:
    """A server as one request sees it: reads of whole values, and what a refusal was about."""

    def __init__(self, client: PlacementClient, request_id: str = "") -> None:
        self.client = client
        self._request_id = request_id

    def send(
        self,
        method: str,
        path: str,
        parameters: Parameters = (),
        body: Mapping[str, Any] | None = None,
    ) -> Answer:
        """Return the server's answer, whatever its status."""
        return self.client.send(Question(method, path, parameters, body), self._request_id)

    def read(self, path: str, parameters: Parameters = ()) -> Any:
        """Return the body of an answer that is one: a read that fails never means "nothing"."""
        question = Question("GET", path, parameters)
        answer = self.client.send(question, self._request_id)
        if answer.status != 200 or answer.body is None:
            raise unexpected(question, answer)
        return answer.body

    def provider(self, provider_id: str) -> Provider | None:
        """Return a provider, or nothing."""
        path = f"/resource_providers/{provider_id}"
        answer = self.send("GET", path)
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise unexpected(Question("GET", path), answer)
        return self.whole(answer.body)

    def whole(self, body: Mapping[str, Any]) -> Provider | None:
        """Return the provider that a listing names with all it has; nothing if it is gone by now.

        It is read in parts: where somebody writes meanwhile the generation is the oldest of
        them, so that a write under it fails.
        """
        parts = {}
        for part in ("inventories", "usages", "traits", "aggregates"):
            path = f"/resource_providers/{body['uuid']}/{part}"
            answer = self.send("GET", path)
            if answer.status == 404:
                return None
            if answer.status != 200:
                raise unexpected(Question("GET", path), answer)
            parts[part] = answer.body
        seen = [item["resource_provider_generation"] for item in parts.values()]
        return Provider(
            body["uuid"],
            body["name"],
            body["parent_provider_uuid"],
            body["root_provider_uuid"],
            min(body["generation"], *seen),
            shapes.inventories_of(parts["inventories"]["inventories"]),
            shapes.without_zeros(parts["usages"]["usages"]),
            frozenset(parts["traits"]["traits"]),
            frozenset(parts["aggregates"]["aggregates"]),
        )

    def consumer(self, consumer_id: str) -> Consumer:
        """Return what a consumer holds."""
        return shapes.consumer_of(consumer_id, self.read(f"/allocations/{consumer_id}"))

    def inventory_in_use(
        self, provider_id: str, inventories: Mapping[str, Inventory]
    ) -> Rejected | None:
        """Return the refusal to remove classes that are in use, where any of them still is."""
        provider = self.provider(provider_id)
        classes = sorted(set(provider.used if provider else ()) - set(inventories))
        if provider is None or not classes:
            return None
        message = f"{', '.join(classes)} of {provider.name} cannot be removed: they are in use"
        return Rejected("inventory_in_use", message, provider=provider_id, classes=classes)

    def refuse_unknown_classes(self, names: Iterable[str]) -> None:
        """Raise `Rejected` (`resource_class_unknown`) for the first of these that is not there."""
        for name in sorted(set(names) - STANDARD_CLASSES):
            if self.send("GET", f"/resource_classes/{name}").status != 200:
                raise no_class(name)

    def refuse_unknown_traits(self, names: Iterable[str]) -> None:
        """Raise `Rejected` (`trait_unknown`) for the first of these that is not there."""
        for name in sorted(set(names)):
            if self.send("GET", f"/traits/{name}").status != 204:
                raise no_trait(name)


def no_class(name: str) -> Rejected:
    """Return the refusal of a resource class."""
    message = f"resource_class is {name}: neither a standard nor a known CUSTOM_ one"
    return Rejected("resource_class_unknown", message, key="resource_class", name=name)


def no_trait(name: str) -> Rejected:
    """Return the refusal of a trait."""
    message = f"trait is {name}: neither a standard nor a known CUSTOM_ one"
    return Rejected("trait_unknown", message, key="trait", name=name)


def no_provider(provider_id: str) -> Rejected:
    """Return the refusal of a provider that is not there."""
    message = f"provider is {provider_id}: there is no such resource provider"
    return Rejected("provider_unknown", message, key="provider", provider=provider_id)


def moved_on(what: str) -> Conflict:
    """Return the conflict of a write under a generation that is no longer the newest."""
    return Conflict("generation_conflict", f"somebody changed {what} since it was read")
