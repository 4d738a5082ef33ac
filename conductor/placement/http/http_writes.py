"""Writing what consumers hold to a Placement server: all or none, again where a race was lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import tenacity

from conductor.placement.allocation_rows import allocations_of, settled, turnover
from conductor.placement.http import serialization as shapes
from conductor.placement.http.http_client import CONCURRENT_UPDATE, Answer, Question, unexpected
from conductor.placement.http.http_queries import PlacementQueries, moved_on, no_provider
from conductor.placement.providers import Consumer, Reshaping
from conductor.placement.validation import check_inventories, checked
from conductor.store import Allocation, Inventory, Provider
from models.errors import Broken, NoValidHost, Rejected

TRIES: Final = 20
"""How often a write is tried that loses races for providers, of which it names no generation."""

CALCULATES_OTHERWISE_AFTER: Final = 3
"""After so many tries a refusal that cannot be explained is no race any more."""

INVENTORY_IN_USE: Final = "placement.inventory.inuse"


class _LostRaceError(Exception):
    """Somebody wrote to a provider meanwhile; nothing of ours was written."""


class _FitsByNowError(_LostRaceError):
    """What was refused for want of room has room as far as can be seen."""


def write(
    server: PlacementQueries, consumers: Sequence[Consumer], wait: tenacity.wait.wait_base
) -> None:
    """Replace what each of these consumers holds, all or none, under their generations."""
    wanted = [
        consumer for consumer in checked(consumers) if not _holds_nothing_already(server, consumer)
    ]
    if not wanted:
        return
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(_LostRaceError),
        wait=wait,
        stop=tenacity.stop_after_attempt(TRIES),
        reraise=True,
    )
    try:
        for attempt in retrying:
            with attempt:
                _try_to_write(server, wanted, attempt.retry_state.attempt_number)
    except _LostRaceError:
        raise moved_on("a provider, again and again,") from None


def reshape(
    server: PlacementQueries, changes: Sequence[Reshaping], consumers: Sequence[Consumer]
) -> None:
    """Replace inventories, and what consumers hold of them, in one go."""
    for change in changes:
        check_inventories(change.inventories)
    inventories = {
        change.provider_id: {
            "inventories": shapes.inventories_json(change.inventories),
            "resource_provider_generation": change.generation,
        }
        for change in changes
    }
    wanted = [
        consumer for consumer in checked(consumers) if not _holds_nothing_already(server, consumer)
    ]
    body = {"inventories": inventories, "allocations": _bodies(wanted, None)}
    answer = server.send("POST", "/reshaper", body=body)
    if answer.status == 204:
        return
    if answer.code == CONCURRENT_UPDATE:
        raise moved_on("a provider or a consumer")
    if answer.code == INVENTORY_IN_USE:
        for change in changes:
            if (
                found := server.inventory_in_use(change.provider_id, change.inventories)
            ) is not None:
                raise found
    after = {change.provider_id: change.inventories for change in changes}
    try:
        _refuse(server, answer, wanted, after)
    except _LostRaceError:
        raise moved_on("a provider or a consumer") from None


def _holds_nothing_already(server: PlacementQueries, consumer: Consumer) -> bool:
    """Say whether there is nothing to write: the server would keep an empty consumer for ever."""
    if consumer.generation is not None or consumer.allocations:
        return False
    if server.consumer(consumer.id).generation is not None:
        raise moved_on(f"consumer {consumer.id}")
    return True


def _try_to_write(server: PlacementQueries, wanted: Sequence[Consumer], number: int) -> None:
    # A claim on a provider that is gone leaves an empty consumer of generation 0 on the server,
    # which refuses every later claim as the first one. So every other try names that generation.
    new = 0 if number % 2 == 0 else None
    answer = server.send("POST", "/allocations", body=_bodies(wanted, new))
    if answer.status == 204:
        return
    try:
        _refuse(server, answer, wanted, {})
    except _FitsByNowError:
        if number < CALCULATES_OTHERWISE_AFTER:
            raise
        message = "the server sees no room where there is some: it counts ratios in binary"
        raise NoValidHost("no_capacity", message) from None


def _bodies(wanted: Iterable[Consumer], new: int | None) -> dict[str, Any]:
    return {
        consumer.id: shapes.consumer_json(
            consumer, new if consumer.generation is None else consumer.generation
        )
        for consumer in wanted
    }


def _refuse(
    server: PlacementQueries,
    answer: Answer,
    wanted: Sequence[Consumer],
    inventories: Mapping[str, Mapping[str, Inventory]],
) -> None:
    """Raise why consumers were not written; providers count with `inventories` where given."""
    held = [server.consumer(consumer.id) for consumer in wanted]
    for before, now in zip(wanted, held, strict=True):
        if answer.status == 409 and before.generation != now.generation:
            raise moved_on(f"consumer {before.id}")
    if answer.code == CONCURRENT_UPDATE:
        raise _LostRaceError
    requested = [consumer.allocations for consumer in wanted]
    providers = _providers(
        server, inventories.keys() | {name for request in requested for name in request}
    )
    if answer.status == 400:
        server.refuse_unknown_classes(
            name
            for row in (*requested, inventories)
            for classes in row.values()
            for name in classes
        )
        raise Rejected("allocation_invalid", "the server finds the allocations malformed")
    if answer.status != 409:
        raise unexpected(Question("POST", "/allocations"), answer)
    for name, provider in providers.items():
        after = replace(provider, inventories=inventories.get(name, provider.inventories))
        _check(after, held, wanted)
    raise _FitsByNowError


def _check(provider: Provider, held: Iterable[Consumer], wanted: Iterable[Consumer]) -> None:
    """Raise what does not fit on one provider: the server tells it in words alone."""
    change = turnover(_of(provider, held), _of(provider, wanted))
    try:
        settled(provider, change)
    except Broken:
        raise _LostRaceError from None


def _of(provider: Provider, consumers: Iterable[Consumer]) -> list[Allocation]:
    return [
        row
        for consumer in consumers
        if provider.id in consumer.allocations
        for row in allocations_of(
            replace(consumer, allocations={provider.id: consumer.allocations[provider.id]}),
            {provider.id: provider.name},
        )
    ]


def _providers(server: PlacementQueries, wanted: Iterable[str]) -> dict[str, Provider]:
    found = {}
    for provider_id in sorted(wanted):
        provider = server.provider(provider_id)
        if provider is None:
            raise no_provider(provider_id)
        found[provider_id] = provider
    return found
