"""What instances hold of providers that are no hosts, in the caller's transaction.

Children of a host are given back and handed over with the host. Providers that share with many
hosts stay with an instance while it moves, at the larger of both sizes; at the end of the move
they get the size of the side that is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from conductor.placement.allocation_rows import Turnover, settled, turnover
from conductor.placement.providers import INSTANCE, Resources
from conductor.placement.requested_amounts import request_of, total_of
from conductor.placement.resources import amounts
from conductor.store.ports import UnitOfWork
from conductor.store.records import Allocation, Instance, Provider
from models.errors import Conflict, NoValidHost
from models.hardware import Flavor, Image, boots_from_volume
from models.hardware.requirements.numa_constraints import guest_topology


@dataclass(frozen=True, slots=True)
class ProviderAllocation:
    """What one instance takes of providers beside its host, by provider id."""

    instance: Instance
    amounts: Mapping[str, Resources]


def take(uow: UnitOfWork, taken: Iterable[ProviderAllocation]) -> None:
    """Charge these providers, under their locks, in order of id.

    What an instance holds of one already is replaced by the larger of both: while it moves, both
    sides need it. Raises `Conflict` (`provider_moved`) where one has no room any more.
    """
    asked = sorted(
        (provider_id, allocation.instance.id, allocation.instance, resources)
        for allocation in taken
        for provider_id, resources in allocation.amounts.items()
    )
    for provider_id, _, instance, resources in asked:
        provider = uow.providers.lock(provider_id)
        if provider is None:
            raise Conflict("provider_moved", f"provider {provider_id} is gone")
        before = uow.allocations.lock(instance.id, provider.name)
        wanted = _larger(before.amounts if before else {}, resources)
        owner = (instance.project_id, instance.user_id)
        after = Allocation(instance.id, provider.name, wanted, INSTANCE, *owner)
        try:
            _exchange(uow, provider, before, after)
        except NoValidHost as error:
            raise Conflict("provider_moved", error.message, provider=provider.name) from error


def release_providers(uow: UnitOfWork, held: Allocation) -> None:
    """Take what was held off its provider, if there still is one; the allocation is gone."""
    provider = _locked(uow, held.provider)
    if provider is not None:
        _note(uow, provider, Turnover((held,), ()))


def split(
    uow: UnitOfWork, held: Sequence[Allocation], host: str | None
) -> tuple[list[Allocation], list[Allocation]]:
    """Return what is held of a host and its children, and what of providers elsewhere."""
    others = [allocation.provider for allocation in held if allocation.provider != host]
    if not others:
        return list(held), []
    home = uow.hosts.get(host) if host is not None else None
    root_id = home.provider_id if home is not None else None
    own = {
        provider.name
        for provider in uow.providers.where(name=others)
        if provider.root_id == root_id
    }
    own |= {host} if host is not None else set()
    return [allocation for allocation in held if allocation.provider in own], [
        allocation
        for allocation in held
        if allocation.provider not in own and uow.hosts.get(allocation.provider) is None
    ]


def asked_in_all(flavor: Flavor, image: Image | None) -> Resources:
    """Return what an instance of flavor and image takes in all, by class, its groups included.

    Raises `Rejected` for a flavor and an image that contradict.
    """
    guest = guest_topology(flavor, image or Image(id=""))
    own = amounts(flavor, guest, volume_backed=boots_from_volume(image))
    return total_of(request_of(flavor, own))


def settle(
    uow: UnitOfWork, shared: Iterable[Allocation], own: Iterable[Allocation], asked: Resources
) -> None:
    """Let an instance hold of what is shared only what it asks in all beyond `own`."""
    left = Counter(dict(asked))
    for allocation in own:
        left.subtract(allocation.amounts)
    for allocation in sorted(shared, key=lambda one: one.provider):
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
    """Write one allocation in place of another, and what it makes of its (locked) provider."""
    _note(uow, provider, turnover([before] if before else [], [after] if after else []))
    if after is not None:
        uow.allocations.put(after)
    elif before is not None:
        uow.allocations.drop(before.consumer_id, before.provider)


def _note(uow: UnitOfWork, provider: Provider, change: Turnover) -> None:
    after = settled(provider, change)
    if after is not provider:
        uow.providers.save(replace(after, generation=provider.generation + 1))


def _larger(one: Resources, other: Resources) -> Resources:
    names = one.keys() | other.keys()
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in sorted(names)}
