"""Charging an instance to a host and giving it back, in the caller's transaction.

The allocation row is the proof of a claim: without one nothing is held, whatever else is
written. So releasing twice, or what never was claimed, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from conductor.placement.local import provider_claims
from conductor.store.ports import UnitOfWork
from conductor.store.records import Allocation, Host, Instance, Migration
from models.errors import Broken, Rejected
from models.hardware import Flavor, HostTopology, Placement, accounting


@dataclass(frozen=True, slots=True)
class HostAllocation:
    """What one consumer takes of a host: a placement (none without NUMA) and amounts by class."""

    consumer_id: str
    project_id: str
    placement: Placement | None
    amounts: Mapping[str, int]
    user_id: str = ""


def charged(host: Host, holdings: Iterable[HostAllocation], now: float) -> Host:
    """Return the host with these holdings in use, one version later.

    Raises `Rejected` (see `accounting.claim`) for a placement that contradicts the topology.
    """
    topology, used, count = host.topology, dict(host.used), host.instances
    for held in holdings:
        if held.placement is not None:
            topology = accounting.claim(topology, held.placement)
        for name, amount in held.amounts.items():
            used[name] = used.get(name, 0) + amount
        count += 1
    return _changed(host, topology, used, count, now)


def relieved(host: Host, held: HostAllocation, now: float) -> Host:
    """Return the host without this holding, one version later; `charged` and back is exact.

    Raises `Broken` (`use_contradicts_claim`) where the host does not have the holding in use.
    """
    topology = host.topology
    if held.placement is not None:
        try:
            topology = accounting.release(topology, held.placement)
        except Rejected as error:
            raise _contradiction(host, held, error.message) from error
    used = dict(host.used)
    for name, amount in held.amounts.items():
        used[name] = used.get(name, 0) - amount
        if used[name] < 0:
            raise _contradiction(host, held, f"{name} in use would fall to {used[name]}")
    used = {name: amount for name, amount in used.items() if amount}
    return _changed(host, topology, used, host.instances - 1, now)


def claim_on(uow: UnitOfWork, host: Host, holdings: Iterable[HostAllocation]) -> Host | None:
    """Charge holdings to the host as it was read; nothing happens when it has changed since.

    Returns the host as written, or None where its version is no longer that of `host`.
    """
    held = tuple(holdings)
    after = charged(host, held, uow.now)
    if not uow.hosts.save_if(after, host.version, host):
        return None
    uow.allocations.add_many(
        [
            Allocation(
                allocation.consumer_id,
                host.name,
                allocation.amounts,
                project_id=allocation.project_id,
                user_id=allocation.user_id,
            )
            for allocation in held
        ]
    )
    return after


def release_claim(uow: UnitOfWork, instance: Instance) -> Instance:
    """Give back all that the instance holds; return it without host and placement.

    Host and allocations are written here, under the host's lock; the caller saves the
    instance. Harmless where nothing, or only a part, is held.
    """
    _give_all_back(uow, _held_by(uow, instance.id), instance.host, instance.placement)
    return replace(instance, host=None, placement=None, availability_zone=None)


def release_host(uow: UnitOfWork, held: Allocation, placement: Placement | None) -> None:
    """Take one allocation off its provider, and its placement; harmless where it is gone."""
    # Dropped first: of two releases at once, the second finds nothing to drop and stops here.
    if not uow.allocations.drop(held.consumer_id, held.provider):
        return
    host = uow.hosts.lock(held.provider)
    if host is None:
        provider_claims.release_providers(uow, held)
        return
    holding = HostAllocation(held.consumer_id, held.project_id, placement, held.amounts)
    uow.hosts.save(relieved(host, holding, uow.now))


def release_target(uow: UnitOfWork, migration: Migration) -> Migration:
    """Give back what the instance holds for the target of a move; return it without a target.

    What it holds of providers that share with the source too has the size for the source again.
    """
    held = _held_by(uow, migration.instance_id)
    own, shared = provider_claims.split(uow, held, migration.target)
    _give_all_back(uow, own, migration.target, migration.target_placement)
    _settle(uow, migration, shared, _held_by(uow, migration.id), migration.source_flavor)
    return replace(migration, target=None, target_placement=None)


def release_source(uow: UnitOfWork, migration: Migration) -> None:
    """Give back what a move holds on the source; what is shared gets the size for the target."""
    source = _held_by(uow, migration.id)
    _give_all_back(uow, source, migration.source, migration.source_placement)
    own, shared = provider_claims.split(uow, _held_by(uow, migration.instance_id), migration.target)
    _settle(uow, migration, shared, own, migration.target_flavor)


def hand_to_migration(uow: UnitOfWork, migration: Migration) -> None:
    """Let the migration, not the instance, hold the source; what is held stays the same.

    Providers that share stay with the instance: whoever moves between hosts that share storage
    has one disk there, and is charged for one.
    """
    held = _held_by(uow, migration.instance_id)
    own, _ = provider_claims.split(uow, held, migration.source)
    _hand_over(uow, own, migration.id, "migration")
    _note_new_holder(uow, migration.source)


def hand_to_instance(uow: UnitOfWork, migration: Migration) -> None:
    """Let the instance hold the source again."""
    _hand_over(uow, _held_by(uow, migration.id), migration.instance_id, "instance")
    _note_new_holder(uow, migration.source)


def _note_new_holder(uow: UnitOfWork, name: str) -> None:
    """Add one to the host's version: whoever follows hosts has to see who holds what, too."""
    host = uow.hosts.lock(name)
    if host is not None:
        uow.hosts.save(replace(host, version=host.version + 1, updated_at=uow.now))


def _settle(
    uow: UnitOfWork,
    migration: Migration,
    shared: Sequence[Allocation],
    own: Iterable[Allocation],
    flavor: Flavor,
) -> None:
    instance = uow.instances.get(migration.instance_id) if shared else None
    if instance is not None:
        provider_claims.settle(
            uow, shared, own, provider_claims.asked_in_all(flavor, instance.image)
        )


def _held_by(uow: UnitOfWork, consumer_id: str) -> list[Allocation]:
    return uow.allocations.where(consumer_id=consumer_id)


def _give_all_back(
    uow: UnitOfWork, held: Iterable[Allocation], host: str | None, placement: Placement | None
) -> None:
    # Hosts last, as everybody locks them.
    for allocation in sorted(held, key=lambda one: one.provider == host):
        release_host(uow, allocation, placement if allocation.provider == host else None)


def _hand_over(uow: UnitOfWork, held: Iterable[Allocation], taker: str, kind: str) -> None:
    for allocation in held:
        if uow.allocations.drop(allocation.consumer_id, allocation.provider):
            uow.allocations.add(replace(allocation, consumer_id=taker, consumer_kind=kind))


def _contradiction(host: Host, held: HostAllocation, why: str) -> Broken:
    message = f"{host.name} cannot give back what {held.consumer_id} holds: {why}"
    return Broken("use_contradicts_claim", message, host=host.name, consumer=held.consumer_id)


def _changed(
    host: Host, topology: HostTopology, used: Mapping[str, int], instances: int, now: float
) -> Host:
    return replace(
        host,
        topology=topology,
        used=used,
        instances=instances,
        version=host.version + 1,
        updated_at=now,
    )
