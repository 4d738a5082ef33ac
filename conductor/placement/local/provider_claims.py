"""Allocating amounts of providers that are no hosts, and releasing them, in the transaction.

Children of a host are released and transferred with the host. Sharing providers stay with an
instance while it moves, at the larger of both sizes; at the end of the move they get the size of
the side that is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from conductor.placement.allocation_rows import Turnover, settled, turnover
from conductor.placement.providers import INSTANCE, Resources, larger_amounts
from conductor.store import Allocation, Instance, Provider, UnitOfWork
from models.errors import Conflict, NoValidHost


@dataclass(frozen=True, slots=True)
class ProviderAllocation:
    """What one instance is allocated of providers other than its host, by provider id."""

    instance: Instance
    amounts: Mapping[str, Resources]


def allocate(uow: UnitOfWork, allocations: Iterable[ProviderAllocation]) -> None:
    """Write allocations of these providers, under their locks, in order of id.

    An existing allocation of the same instance is replaced by the larger of both: while it moves,
    both sides need it. Raises `Conflict` (`provider_moved`) where one has no capacity any more.
    """
    requested = sorted(
        (provider_id, allocation.instance.id, allocation.instance, resources)
        for allocation in allocations
        for provider_id, resources in allocation.amounts.items()
    )
    for provider_id, _, instance, resources in requested:
        provider = uow.providers.lock(provider_id)
        if provider is None:
            raise Conflict("provider_moved", f"provider {provider_id} is gone")
        before = uow.allocations.lock(instance.id, provider.name)
        wanted = larger_amounts(before.amounts if before else {}, resources)
        owner = (instance.project_id, instance.user_id)
        after = Allocation(instance.id, provider.name, wanted, INSTANCE, *owner)
        try:
            _exchange(uow, provider, before, after)
        except NoValidHost as error:
            raise Conflict("provider_moved", error.message, provider=provider.name) from error


def release(uow: UnitOfWork, allocation: Allocation) -> None:
    """Take an allocation, whose row has been deleted, out of its provider's use, if it exists."""
    provider = _locked(uow, allocation.provider)
    if provider is not None:
        _save_use(uow, provider, Turnover((allocation,), ()))


def split_shared(
    uow: UnitOfWork, allocations: Sequence[Allocation], host: str | None
) -> tuple[list[Allocation], list[Allocation]]:
    """Return the allocations of a host and its children, and those of providers elsewhere."""
    others = [allocation.provider for allocation in allocations if allocation.provider != host]
    if not others:
        return list(allocations), []
    home = uow.hosts.get(host) if host is not None else None
    root_id = home.provider_id if home is not None else None
    own = {
        provider.name
        for provider in uow.providers.where(name=others)
        if provider.root_id == root_id
    }
    own |= {host} if host is not None else set()
    return [allocation for allocation in allocations if allocation.provider in own], [
        allocation
        for allocation in allocations
        if allocation.provider not in own and uow.hosts.get(allocation.provider) is None
    ]


def resize_shared(
    uow: UnitOfWork, shared: Iterable[Allocation], own: Iterable[Allocation], requested: Resources
) -> None:
    """Reduce an instance's shared allocations to what it requests in all beyond `own`."""
    left = Counter(dict(requested))
    for allocation in own:
        left.subtract(allocation.amounts)
    for allocation in sorted(shared, key=lambda row: row.provider):
        wanted = {name: min(amount, left[name]) for name, amount in allocation.amounts.items()}
        wanted = {name: amount for name, amount in wanted.items() if amount > 0}
        left.subtract(wanted)
        provider = _locked(uow, allocation.provider) if wanted != dict(allocation.amounts) else None
        if provider is not None:
            _exchange(
                uow, provider, allocation, replace(allocation, amounts=wanted) if wanted else None
            )


def _locked(uow: UnitOfWork, name: str) -> Provider | None:
    found = uow.providers.where(name=name)
    return uow.providers.lock(found[0].id) if found else None


def _exchange(
    uow: UnitOfWork, provider: Provider, before: Allocation | None, after: Allocation | None
) -> None:
    """Write one allocation in place of another, and the use of its (locked) provider."""
    _save_use(uow, provider, turnover([before] if before else [], [after] if after else []))
    if after is not None:
        uow.allocations.put(after)
    elif before is not None:
        uow.allocations.drop(before.consumer_id, before.provider)


def _save_use(uow: UnitOfWork, provider: Provider, change: Turnover) -> None:
    after = settled(provider, change)
    if after is not provider:
        uow.providers.save(replace(after, generation=provider.generation + 1))
