"""Allocating an instance's share of a host and releasing it, in the caller's transaction.

The same three verbs as for providers (`provider_claims`): here for one host, in
`instance_allocations` for all that an instance or a move is allocated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from conductor.store import Allocation, Host, UnitOfWork
from models.errors import Broken, Rejected
from models.hardware import HostTopology, Placement, accounting


@dataclass(frozen=True, slots=True)
class HostAllocation:
    """What one consumer is allocated of a host: a placement (none without NUMA), amounts by class.

    As a row it is an `Allocation`, which has no placement: that is in the instance or the move.
    """

    consumer_id: str
    project_id: str
    placement: Placement | None
    amounts: Mapping[str, int]
    user_id: str = ""


def with_allocations(host: Host, allocations: Iterable[HostAllocation], now: float) -> Host:
    """Return the host with these allocations in use, one version later.

    Raises `Rejected` (see `accounting.claim`) for a placement that contradicts the topology.
    """
    topology, used, count = host.topology, dict(host.used), host.instances
    for allocation in allocations:
        if allocation.placement is not None:
            topology = accounting.claim(topology, allocation.placement)
        for name, amount in allocation.amounts.items():
            used[name] = used.get(name, 0) + amount
        count += 1
    return _changed(host, topology, used, count, now)


def without_allocation(host: Host, allocation: HostAllocation, now: float) -> Host:
    """Return the host without this allocation: the exact inverse of `with_allocations`.

    Raises `Broken` (`use_contradicts_claim`) where the host does not have it in use.
    """
    topology = host.topology
    if allocation.placement is not None:
        try:
            topology = accounting.release(topology, allocation.placement)
        except Rejected as error:
            raise _contradiction(host, allocation, error.message) from error
    used = dict(host.used)
    for name, amount in allocation.amounts.items():
        used[name] = used.get(name, 0) - amount
        if used[name] < 0:
            raise _contradiction(host, allocation, f"{name} in use would fall to {used[name]}")
    used = {name: amount for name, amount in used.items() if amount}
    return _changed(host, topology, used, host.instances - 1, now)


def allocate(uow: UnitOfWork, host: Host, allocations: Iterable[HostAllocation]) -> Host | None:
    """Write allocations of the host as it was read; nothing happens when it has changed since.

    Returns the host as written, or None where its version is no longer that of `host`.
    """
    written = tuple(allocations)
    after = with_allocations(host, written, uow.now)
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
            for allocation in written
        ]
    )
    return after


def release(
    uow: UnitOfWork, host: Host, allocation: Allocation, placement: Placement | None
) -> None:
    """Take an allocation, whose row has been deleted, out of the use of its (locked) host."""
    released = HostAllocation(
        allocation.consumer_id, allocation.project_id, placement, allocation.amounts
    )
    uow.hosts.save(without_allocation(host, released, uow.now))


def note_transfer(uow: UnitOfWork, name: str) -> None:
    """Add one to the host's version, so that its change feed shows the new consumer too."""
    host = uow.hosts.lock(name)
    if host is not None:
        uow.hosts.save(replace(host, version=host.version + 1, updated_at=uow.now))


def _contradiction(host: Host, allocation: HostAllocation, why: str) -> Broken:
    consumer = allocation.consumer_id
    message = f"{host.name} cannot release the allocation of {consumer}: {why}"
    return Broken("use_contradicts_claim", message, host=host.name, consumer=consumer)


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
