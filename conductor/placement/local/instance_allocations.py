"""Release and transfer all allocations of an instance or a move, in the caller's transaction.

The allocation row is the proof of a claim: without one nothing is allocated, whatever else is
written. So to release twice, or what never was allocated, changes nothing: every function here
is idempotent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from conductor.placement.local import host_claims, provider_claims
from conductor.placement.providers import INSTANCE, MIGRATION
from conductor.placement.requested_amounts import total_requested
from conductor.store import Allocation, Instance, Migration, UnitOfWork
from models.hardware.flavor import Flavor
from models.hardware.guest_topology import Placement


def release(uow: UnitOfWork, allocation: Allocation, placement: Placement | None) -> None:
    """Release one allocation, of a host with its placement; harmless where it is gone."""
    # Deleted first: of two releases at once, the second finds nothing to delete and stops here.
    if not uow.allocations.drop(allocation.consumer_id, allocation.provider):
        return
    host = uow.hosts.lock(allocation.provider)
    if host is None:
        provider_claims.release(uow, allocation)
    else:
        host_claims.release(uow, host, allocation, placement)


def release_instance(uow: UnitOfWork, instance: Instance) -> Instance:
    """Release all allocations of the instance; return it without host and placement.

    Host and allocations are written here, under the host's lock; the caller saves the
    instance. Harmless where nothing, or only a part, is allocated.
    """
    _release_all(uow, _allocations_of(uow, instance.id), instance.host, instance.placement)
    return replace(instance, host=None, placement=None, availability_zone=None)


def release_target(uow: UnitOfWork, migration: Migration) -> Migration:
    """Release what the instance is allocated for the target; return the move without a target.

    Its allocations of providers that share with the source get the size for the source again.
    """
    allocations = _allocations_of(uow, migration.instance_id)
    own, shared = provider_claims.split_shared(uow, allocations, migration.target)
    _release_all(uow, own, migration.target, migration.target_placement)
    source = _allocations_of(uow, migration.id)
    _resize_shared(uow, migration, shared, source, migration.source_flavor)
    return replace(migration, target=None, target_placement=None)


def release_source(uow: UnitOfWork, migration: Migration) -> None:
    """Release what a move is allocated on the source; shared providers get the target's size."""
    source = _allocations_of(uow, migration.id)
    _release_all(uow, source, migration.source, migration.source_placement)
    allocations = _allocations_of(uow, migration.instance_id)
    own, shared = provider_claims.split_shared(uow, allocations, migration.target)
    _resize_shared(uow, migration, shared, own, migration.target_flavor)


def transfer_to_migration(uow: UnitOfWork, migration: Migration) -> None:
    """Transfer the source's allocations from the instance to the migration, amounts unchanged.

    Sharing providers stay with the instance: between hosts that share storage it has one disk
    there, and is charged for one.
    """
    allocations = _allocations_of(uow, migration.instance_id)
    own, _ = provider_claims.split_shared(uow, allocations, migration.source)
    _transfer(uow, own, migration.id, MIGRATION)
    host_claims.note_transfer(uow, migration.source)


def transfer_to_instance(uow: UnitOfWork, migration: Migration) -> None:
    """Transfer the source's allocations from the migration back to the instance."""
    _transfer(uow, _allocations_of(uow, migration.id), migration.instance_id, INSTANCE)
    host_claims.note_transfer(uow, migration.source)


def _resize_shared(
    uow: UnitOfWork,
    migration: Migration,
    shared: Sequence[Allocation],
    own: Iterable[Allocation],
    flavor: Flavor,
) -> None:
    instance = uow.instances.get(migration.instance_id) if shared else None
    if instance is not None:
        requested = total_requested(flavor, instance.image)
        provider_claims.resize_shared(uow, shared, own, requested)


def _allocations_of(uow: UnitOfWork, consumer_id: str) -> list[Allocation]:
    return uow.allocations.where(consumer_id=consumer_id)


def _release_all(
    uow: UnitOfWork,
    allocations: Iterable[Allocation],
    host: str | None,
    placement: Placement | None,
) -> None:
    # The host last: everybody locks providers before hosts.
    for allocation in sorted(allocations, key=lambda row: row.provider == host):
        release(uow, allocation, placement if allocation.provider == host else None)


def _transfer(
    uow: UnitOfWork, allocations: Iterable[Allocation], consumer_id: str, kind: str
) -> None:
    for allocation in allocations:
        if uow.allocations.drop(allocation.consumer_id, allocation.provider):
            uow.allocations.add(replace(allocation, consumer_id=consumer_id, consumer_kind=kind))
