"""Whether a host is up: one rule, used by engine, scheduler and the commands."""

from __future__ import annotations

from conductor.store.ports import UnitOfWork
from conductor.store.records import Heartbeat, Host
from models.lifecycle import HostState


def is_up(host: Host | None, heartbeat: Heartbeat | None, now: float, down_after_s: float) -> bool:
    """Say whether a host counts as alive: known, not forced down, heard of lately."""
    if host is None or host.forced_down or heartbeat is None:
        return False
    return now - heartbeat.seen_at <= down_after_s


def host_is_up(uow: UnitOfWork, name: str, down_after_s: float) -> bool:
    """Say whether the named host counts as alive now."""
    return is_up(uow.hosts.get(name), uow.heartbeats.get(name), uow.now, down_after_s)


def state_of(host: Host, *, up: bool) -> tuple[HostState, str | None]:
    """Return what `hosts show` says of a host, and why."""
    if host.forced_down:
        return HostState.DOWN, host.disabled_reason or "forced down"
    if not up:
        return HostState.DOWN, "no heartbeat"
    if host.degraded:
        return HostState.DEGRADED, host.degraded
    if not host.enabled:
        return HostState.DISABLED, host.disabled_reason
    return HostState.UP, None
