"""What instances hold of providers that are no hosts, in the caller's transaction.

Children of a host are given back and handed over with the host. Providers that share with many
hosts stay with an instance while it moves, at the larger of both sizes; at the end of the move
they get the size of the side that is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from conductor.placement.providers import Resources
from conductor.placement.resources import amounts
from conductor.placement.wishes import request_of, total_of
from conductor.store.ports import UnitOfWork
from conductor.store.records import Allocation, Instance, Provider
from models.errors import Conflict
from models.hardware.constraints import guest_topology
from models.hardware.flavor import Flavor
from models.hardware.frozen import FrozenMap
from models.hardware.image import Image


@dataclass(frozen=True, slots=True)
class Taken:
    """What one instance takes of providers beside its host, by provider id."""

    instance: Instance
    amounts: Mapping[str, Resources]


def take(uow: UnitOfWork, taken: Iterable[Taken]) -> None:
    """Charge these providers, under their locks, in order of id.

    What an instance holds of one already is replaced by the larger of both: while it moves, both
    sides need it. Raises `Conflict` (`provider_moved`) where one has no room any more.
    """
    asked = sorted(
        (provider_id, each.instance.id, each.instance, resources)
        for each in taken
        for provider_id, resources in each.amounts.items()
    )
    for provider_id, _, instance, resources in asked:
        provider = uow.providers.lock(provider_id)
        if provider is None:
            raise Conflict("provider_moved", f"provider {provider_id} is gone")
        before = uow.allocations.lock(instance.id, provider.name)
        wanted = _larger(before.amounts if before else {}, resources)
        uow.providers.save(_charged(provider, before.amounts if before else {}, wanted))
        if before is not None:
            uow.allocations.save(replace(before, amounts=wanted))
        else:
            owner = (instance.project_id, instance.user_id)
            uow.allocations.add(Allocation(instance.id, provider.name, wanted, "instance", *owner))


def relieve(uow: UnitOfWork, held: Allocation) -> None:
    """Take what was held off its provider, if there still is one; the allocation is gone."""
    found = uow.providers.where(name=held.provider)
    provider = uow.providers.lock(found[0].id) if found else None
    if provider is not None:
        uow.providers.save(_noted(provider, held.amounts, {}))


def split(
    uow: UnitOfWork, held: Sequence[Allocation], host: str | None
) -> tuple[list[Allocation], list[Allocation]]:
    """Return what is held of a host and its children, and what of providers elsewhere."""
    others = [each.provider for each in held if each.provider != host]
    if not others:
        return list(held), []
    home = uow.hosts.get(host) if host is not None else None
    root_id = home.provider_id if home is not None else None
    own = {each.name for each in uow.providers.where(name=others) if each.root_id == root_id}
    own |= {host} if host is not None else set()
    return [each for each in held if each.provider in own], [
        each for each in held if each.provider not in own and uow.hosts.get(each.provider) is None
    ]


def asked_in_all(flavor: Flavor, image: Image | None) -> Resources:
    """Return what an instance of flavor and image takes in all, by class, its groups included.

    Raises `Rejected` for a flavor and an image that contradict.
    """
    guest = guest_topology(flavor, image or Image(id=""))
    return total_of(request_of(flavor, amounts(flavor, guest, volume_backed=image is None)))


def settle(
    uow: UnitOfWork, shared: Iterable[Allocation], own: Iterable[Allocation], asked: Resources
) -> None:
    """Let an instance hold of what is shared only what it asks in all beyond `own`."""
    left = Counter(dict(asked))
    for each in own:
        left.subtract(each.amounts)
    for each in sorted(shared, key=lambda one: one.provider):
        wanted = {name: min(amount, left[name]) for name, amount in each.amounts.items()}
        wanted = {name: amount for name, amount in wanted.items() if amount > 0}
        left.subtract(wanted)
        if wanted != dict(each.amounts):
            _change(uow, each, wanted)


def _change(uow: UnitOfWork, held: Allocation, wanted: Resources) -> None:
    found = uow.providers.where(name=held.provider)
    provider = uow.providers.lock(found[0].id) if found else None
    if wanted:
        uow.allocations.save(replace(held, amounts=wanted))
    else:
        uow.allocations.drop(held.consumer_id, held.provider)
    if provider is not None:
        uow.providers.save(_noted(provider, held.amounts, wanted))


def _charged(provider: Provider, before: Resources, wanted: Resources) -> Provider:
    after = _noted(provider, before, wanted)
    for name, amount in wanted.items():
        has = provider.inventories[name].capacity if name in provider.inventories else 0
        if amount > before.get(name, 0) and after.used.get(name, 0) > has:
            message = f"{provider.name} has no room for {amount} {name} any more"
            raise Conflict("provider_moved", message, provider=provider.name)
    return after


def _noted(provider: Provider, before: Resources, after: Resources) -> Provider:
    used = Counter(dict(provider.used))
    used.subtract(before)
    used.update(after)
    noted = FrozenMap({name: amount for name, amount in used.items() if amount > 0})
    return replace(provider, used=noted, generation=provider.generation + 1)


def _larger(one: Resources, other: Resources) -> Resources:
    names = one.keys() | other.keys()
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in sorted(names)}
