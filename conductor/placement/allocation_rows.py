"""What consumers held and will hold, and what that makes of a provider (pure)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from conductor.placement.providers import INSTANCE, MIGRATION, Consumer, Resources
from conductor.store import Allocation, Provider
from models.errors import Broken, NoValidHost, Rejected
from models.hardware import FrozenMap

GUESTS: Final = (INSTANCE, MIGRATION)
"""The kinds of consumers that a host counts as its instances."""

_GENERATION_BYTES: Final = 6
"""Little enough for every number in JSON, and for two to be the same by chance never to happen."""


@dataclass(frozen=True, slots=True)
class Turnover:
    """Allocations that go, and those that come instead; what stays as it is, is in neither."""

    gone: tuple[Allocation, ...]
    come: tuple[Allocation, ...]

    @property
    def providers(self) -> frozenset[str]:
        """The names of the providers whose books change."""
        return frozenset(allocation.provider for allocation in (*self.gone, *self.come))

    def guests(self, provider: str) -> int:
        """Return how many guests more (or fewer) the provider has afterwards."""
        return _guests(self.come, provider) - _guests(self.gone, provider)


def turnover(before: Iterable[Allocation], after: Iterable[Allocation]) -> Turnover:
    """Return what has to change, in ascending order of consumer and provider."""
    old, new = _by_key(before), _by_key(after)
    return Turnover(
        tuple(old[key] for key in sorted(old) if new.get(key) != old[key]),
        tuple(new[key] for key in sorted(new) if old.get(key) != new[key]),
    )


def generation_of(held: Sequence[Allocation]) -> int | None:
    """Return a number that stays the same while a consumer holds the same; None of nothing.

    A digest rather than a count: whoever writes allocations need not know of it.
    """
    if not held:
        return None
    rows = sorted(
        [
            allocation.provider,
            sorted(allocation.amounts.items()),
            allocation.consumer_kind,
            *_owner(allocation),
        ]
        for allocation in held
    )
    digest = hashlib.blake2b(json.dumps(rows).encode(), digest_size=_GENERATION_BYTES)
    return int.from_bytes(digest.digest(), "big")


def allocations_of(consumer: Consumer, names: Mapping[str, str]) -> tuple[Allocation, ...]:
    """Return the rows of a consumer; `names` has the name of each provider's id."""
    return tuple(
        Allocation(
            consumer.id,
            names[provider_id],
            resources,
            consumer_kind=consumer.kind,
            project_id=consumer.project_id,
            user_id=consumer.user_id,
        )
        for provider_id, resources in consumer.allocations.items()
    )


def consumer_of(consumer_id: str, held: Sequence[Allocation], ids: Mapping[str, str]) -> Consumer:
    """Return the consumer that these rows are of; `ids` has the id of each provider's name."""
    if not held:
        return Consumer(consumer_id)
    project_id, user_id = _owner(held[0])
    return Consumer(
        consumer_id,
        FrozenMap({ids[allocation.provider]: FrozenMap(allocation.amounts) for allocation in held}),
        project_id,
        user_id,
        held[0].consumer_kind,
        generation_of(held),
    )


def settled(provider: Provider, change: Turnover) -> Provider:
    """Return the provider with its use after the turnover, checked against what it has.

    What is given back is given back first. A class of which no more is in use than before is
    taken even where more is in use than there is. Raises `NoValidHost` (`no_capacity`) and
    `Rejected` (`allocation_invalid`, for an amount against `min_unit` or `step_size`).
    """
    gone = [
        allocation.amounts for allocation in change.gone if allocation.provider == provider.name
    ]
    come = [
        allocation.amounts for allocation in change.come if allocation.provider == provider.name
    ]
    others = _without(provider, gone)
    requested = _sum(come)
    after = _sum([others, requested])
    _check_sizes(provider, gone, come)
    for name in sorted(requested):
        if after[name] > provider.used.get(name, 0):
            _check_capacity(provider, name, requested[name], others.get(name, 0))
    used = FrozenMap({name: amount for name, amount in after.items() if amount})
    # An equal mapping is kept, so that the store sees that nothing has changed.
    return provider if used == provider.used else replace(provider, used=used)


def _check_sizes(provider: Provider, gone: Sequence[Resources], come: Sequence[Resources]) -> None:
    # What was held already may be held on, by another consumer too, whatever has changed since.
    held = {pair for amounts in gone for pair in amounts.items()}
    for name, amount in sorted({pair for amounts in come for pair in amounts.items()} - held):
        inventory = provider.inventories.get(name)
        if inventory is None:
            raise _no_capacity(provider, name, amount, 0)
        if not inventory.takes(amount):
            rule = f"at least {inventory.min_unit}, in steps of {inventory.step_size}"
            message = f"{provider.name}: {name} is {amount}: should be {rule}"
            raise Rejected(
                "allocation_invalid", message, name, provider=provider.id, resource_class=name
            )
        if inventory.max_unit is not None and amount > inventory.max_unit:
            raise _no_capacity(provider, name, amount, inventory.most)


def _check_capacity(provider: Provider, name: str, need: int, others: int) -> None:
    inventory = provider.inventories.get(name)
    capacity = 0 if inventory is None else inventory.capacity
    if others + need > capacity:
        raise _no_capacity(provider, name, need, max(0, capacity - others))


def _no_capacity(provider: Provider, name: str, need: int, have: int) -> NoValidHost:
    message = f"{provider.name} has {have} of {name} for this, and {need} are asked for"
    return NoValidHost(
        "no_capacity", message, provider=provider.id, resource_class=name, need=need, have=have
    )


def _without(provider: Provider, gone: Iterable[Resources]) -> dict[str, int]:
    left = dict(provider.used)
    for name, amount in _sum(gone).items():
        left[name] = left.get(name, 0) - amount
        if left[name] < 0:
            message = f"{provider.name} cannot give back {amount} of {name}: less is in use"
            raise Broken("use_contradicts_claim", message, provider=provider.id)
    return left


def _sum(amounts: Iterable[Resources]) -> Counter[str]:
    total: Counter[str] = Counter()
    for amount in amounts:
        total.update(amount)
    return total


def _guests(allocations: Iterable[Allocation], provider: str) -> int:
    return sum(
        allocation.provider == provider and allocation.consumer_kind in GUESTS
        for allocation in allocations
    )


def _owner(held: Allocation) -> tuple[str, str]:
    return held.project_id, held.user_id


def _by_key(allocations: Iterable[Allocation]) -> dict[tuple[str, str], Allocation]:
    return {(allocation.consumer_id, allocation.provider): allocation for allocation in allocations}
