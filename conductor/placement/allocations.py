"""Allocate, release, move and heal allocations over any placement service.

Optimistic concurrency: each change reads the consumers, writes them under the generations that
were read, and retries on a conflict. All changes are idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import tenacity

from conductor.placement.ports import PlacementService
from conductor.placement.providers import (
    INSTANCE,
    MIGRATION,
    SHARING,
    Consumer,
    ProviderAmounts,
    larger_amounts,
)
from conductor.placement.request_groups import Candidate
from conductor.store import nothing
from models.errors import Conflict, Rejected
from models.hardware import FrozenMap

TRIES: Final = 12

_WAIT: Final = tenacity.wait_random_exponential(multiplier=0.01, max=1.0)


@dataclass(frozen=True, slots=True)
class Move:
    """A move of an instance: its allocations of the source, and those it gets of the target.

    Until it is confirmed or reverted the migration holds the source and the instance the target.
    Of a provider that shares with both (`shared`) only the instance holds something, once: the
    larger of both.
    """

    instance: Consumer
    migration_id: str
    target: ProviderAmounts
    shared: frozenset[str] = frozenset()

    @property
    def source(self) -> ProviderAmounts:
        """What the instance held before the move."""
        return self.instance.allocations


def allocate(placement: PlacementService, consumer: Consumer, candidate: Candidate) -> None:
    """Allocate a candidate to a consumer without allocations.

    Raises `NoValidHost` (`no_capacity`) where it does not fit any more, and `Rejected`
    (`already_claimed`) where the consumer holds something else.
    """
    wanted = replace(consumer, allocations=candidate.allocations)

    def claimed(held: Sequence[Consumer]) -> Sequence[Consumer]:
        if held[0].allocations and held[0].allocations != candidate.allocations:
            message = f"{consumer.id} already holds something of {', '.join(held[0].allocations)}"
            raise Rejected("already_claimed", message, consumer=consumer.id)
        return [wanted]

    _write(placement, [consumer.id], claimed)


def release(placement: PlacementService, consumer_id: str) -> None:
    """Release all allocations of a consumer."""
    change(placement, [consumer_id], lambda _: {consumer_id: nothing()})


def heal(placement: PlacementService, wanted: Consumer) -> bool:
    """Write the allocations that a consumer should have; say whether they differed."""
    return _write(placement, [wanted.id], lambda _: [wanted])


def heal_all(
    placement: PlacementService,
    consumer_ids: Sequence[str],
    wanted: Callable[[], Sequence[Consumer]],
) -> bool:
    """Let all of these hold what they should, or none; say whether any did not before.

    What they should is asked after what they hold was read: who writes meanwhile makes both be
    read anew, so that nothing old is written over something new.
    """
    return _write(placement, consumer_ids, lambda _: wanted())


def plan_move(
    placement: PlacementService, instance_id: str, migration_id: str, candidate: Candidate
) -> Move:
    """Return the move of an instance from where it is to a candidate; nothing is written."""
    instance = placement.consumer(instance_id)
    shared = set()
    for provider_id in sorted(set(instance.allocations) & set(candidate.allocations)):
        provider = placement.provider(provider_id)
        # A host that shares its own disk is the same host for a move within it.
        if provider and SHARING in provider.traits and provider.root_id != candidate.root_id:
            shared.add(provider_id)
    return Move(instance, migration_id, candidate.allocations, frozenset(shared))


def begin_move(placement: PlacementService, move: Move) -> None:
    """Transfer the source to the migration and allocate the target to the instance, atomically."""
    source = {name: held for name, held in move.source.items() if name not in move.shared}
    target = {
        name: FrozenMap(larger_amounts(held, move.source[name])) if name in move.shared else held
        for name, held in move.target.items()
    }
    _settle(placement, move, target, source)


def confirm_move(placement: PlacementService, move: Move) -> None:
    """Release the source; on the same host, what the instance no longer needs."""
    _settle(placement, move, move.target, nothing())


def revert_move(placement: PlacementService, move: Move) -> None:
    """Release the target and transfer the source back to the instance."""
    _settle(placement, move, move.source, nothing())


def change(
    placement: PlacementService,
    consumer_ids: Sequence[str],
    wanted: Callable[[Sequence[Consumer]], Mapping[str, ProviderAmounts]],
) -> bool:
    """Replace allocations by what `wanted` makes of them; say whether that differed."""

    def changed(held: Sequence[Consumer]) -> Sequence[Consumer]:
        after = wanted(held)
        return [replace(consumer, allocations=after[consumer.id]) for consumer in held]

    return _write(placement, consumer_ids, changed)


def _settle(
    placement: PlacementService, move: Move, instance: ProviderAmounts, migration: ProviderAmounts
) -> None:
    taker = replace(move.instance, allocations=instance, kind=INSTANCE)
    keeper = replace(move.instance, id=move.migration_id, allocations=migration, kind=MIGRATION)
    _write(placement, [taker.id, keeper.id], lambda _: [taker, keeper])


def _write(
    placement: PlacementService,
    consumer_ids: Sequence[str],
    wanted: Callable[[Sequence[Consumer]], Sequence[Consumer]],
) -> bool:
    """Write what `wanted` makes of what is held, under its generations, if it differs."""
    for attempt in tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(Conflict),
        wait=_WAIT,
        stop=tenacity.stop_after_attempt(TRIES),
        reraise=True,
    ):
        with attempt:
            held = [placement.consumer(consumer_id) for consumer_id in consumer_ids]
            after = [
                replace(new, generation=old.generation)
                for old, new in zip(held, wanted(held), strict=True)
            ]
            differs = any(
                _without_zeros(old.allocations) != _without_zeros(new.allocations)
                for old, new in zip(held, after, strict=True)
            )
            if differs:
                placement.write([new for old, new in zip(held, after, strict=True) if old != new])
    return differs


def _without_zeros(held: ProviderAmounts) -> ProviderAmounts:
    found = {
        provider_id: FrozenMap({name: amount for name, amount in resources.items() if amount})
        for provider_id, resources in held.items()
    }
    return {provider_id: resources for provider_id, resources in found.items() if resources}
