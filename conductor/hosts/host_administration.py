"""Hosts as operators act on them: opened, closed, declared dead, removed."""

from __future__ import annotations

from dataclasses import replace

from conductor.operations.engine.wait_reasons import ON_HOST
from conductor.placement.consistency.changed_hardware import reconsidered
from conductor.store import Host, UnitOfWork
from models.errors import Rejected


def set_enabled(uow: UnitOfWork, name: str, *, enabled: bool, reason: str | None) -> Host:
    """Open or close a host for new instances; raise `Rejected` for an unknown one.

    Enabling a degraded host says that a person has looked at it; hardware that it reported is
    taken in. Raises `Rejected` (`hardware_contradicts_guests`) while that contradicts its guests.
    """
    host = must_lock(uow, name)
    if enabled:
        host = reconsidered(uow, host)
        if host.reported is not None:
            message = f"host is {name}: {host.degraded}; move or delete them first"
            raise Rejected("hardware_contradicts_guests", message, key="host")
    changed = replace(
        host,
        enabled=enabled,
        disabled_reason=None if enabled else reason,
        forced_down=host.forced_down and not enabled,
        degraded=None if enabled else host.degraded,
        version=host.version + 1,
    )
    uow.hosts.save(changed)
    served = uow.registrations.lock(name)
    if enabled and served is not None and served.refused is not None:
        troubled = bool(served.unexpected_count or served.notes)
        uow.registrations.save(replace(served, refused=None, troubled=troubled))
    return changed


def force_down(uow: UnitOfWork, name: str, reason: str | None) -> Host:
    """Declare a host dead: what waits for it goes on without it."""
    host = must_lock(uow, name)
    changed = replace(
        host, forced_down=True, disabled_reason=reason or "forced down", version=host.version + 1
    )
    uow.hosts.save(changed)
    for record in uow.operations.where(waiting_on=ON_HOST + name, ended_at=None):
        uow.operations.save(replace(record, wake_at=uow.now))
    return changed


def remove(uow: UnitOfWork, name: str) -> None:
    """Delete a host without allocations, and its children; raise `Rejected` naming its instances.

    The children are gone with it: a provider tree without its root serves nobody.
    """
    host = must_lock(uow, name)
    children = uow.providers.where(root_id=host.provider_id) if host.provider_id else []
    held = uow.allocations.where(provider=[name, *(provider.name for provider in children)])
    if held:
        ids = ", ".join(a.consumer_id for a in held[:5])
        message = f"host is {name}: it still holds {len(held)} instances ({ids})"
        raise Rejected("host_in_use", message, key="host")
    for child in children:
        uow.providers.drop(child.id)
    uow.hosts.drop(name)
    uow.heartbeats.drop(name)
    uow.registrations.drop(name)


def must_lock(uow: UnitOfWork, name: str) -> Host:
    """Return the host, locked; raise `Rejected` when there is none."""
    host = uow.hosts.lock(name)
    if host is None:
        raise Rejected("host_unknown", f"host is {name}: no such host", key="host")
    return host
