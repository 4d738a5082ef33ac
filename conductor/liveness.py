"""Whether a host is up: one rule, used by engine, scheduler and the commands.

A host's silence counts only while somebody listens. So conductors send themselves a heartbeat by
the way that hosts' heartbeats come, through the broker and the queue of reports: how long a host
has been silent is measured by the newest of these echoes, not by the clock on the wall. After an
outage of conductors, broker or database the hosts are as alive as before it, until they have had
time to be heard again.
"""

from __future__ import annotations

import math
from typing import Final

from conductor.store import Heartbeat, Host, OperationRecord, UnitOfWork
from models.lifecycle import HostState
from models.messages.internal import ECHO

ECHO_EVERY_S: Final = 2.0


DEAF: Final = "deaf"
"""A host degraded for this sends heartbeats, but reads nothing: the reason begins with it."""
HUNG: Final = "hung"
"""What a host is degraded for whose hypervisor calls do not end."""
DISTRUSTS: Final = "distrusts this database"
"""What a host is degraded for whose worker obeys another database, or a newer state of this one."""
UNANSWERED_AFTER_S: Final = 30.0
"""A dispatch without a reply for longer is shown."""
MOST_UNANSWERED: Final = 500


def is_deaf(host: Host | None) -> bool:
    """Say whether a host is known to hear nothing, though it may well be alive."""
    return host is not None and (host.degraded or "").startswith(DEAF)


def hear_echo(uow: UnitOfWork, down_after_s: float) -> None:
    """Note that reports are being read, and since when (`reported_at`) without a gap so long."""
    known = uow.heartbeats.lock(ECHO)
    deaf = known is None or uow.now - known.seen_at > down_after_s
    since = uow.now if known is None or deaf else known.reported_at
    uow.heartbeats.put(Heartbeat(ECHO, "echo", uow.now, since))


def silent_before(uow: UnitOfWork, down_after_s: float) -> float:
    """Return the time such that a host is down when it was heard of last before it."""
    echo = uow.heartbeats.get(ECHO)
    if echo is None:
        return uow.now - down_after_s
    since = echo.seen_at - down_after_s
    return since if echo.reported_at < since else -math.inf


def is_up(host: Host | None, heartbeat: Heartbeat | None, since: float) -> bool:
    """Say whether a host counts as alive: known, not forced down, heard of since then."""
    if host is None or host.forced_down or heartbeat is None:
        return False
    return heartbeat.seen_at >= since


def host_is_up(uow: UnitOfWork, name: str, down_after_s: float) -> bool:
    """Say whether the named host counts as alive now."""
    since = silent_before(uow, down_after_s)
    return is_up(uow.hosts.get(name), uow.heartbeats.get(name), since)


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


def unanswered(uow: UnitOfWork) -> list[OperationRecord]:
    """Return the operations whose dispatch has had no reply for long, the oldest first."""
    return uow.operations.unanswered(uow.now - UNANSWERED_AFTER_S, MOST_UNANSWERED)
