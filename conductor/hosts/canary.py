"""Whether hosts read their queues: a canary through each, answered by the next heartbeat.

A heartbeat proves that a host can speak. That it also listens is proven end to end: when its
heartbeat is handled and one is due, a canary is sent the way its instructions go, and a later
heartbeat says that it was heard. So a host that beats, but whose queue is gone, unbound or not
read, is known within a minute; it is degraded, and what waits for it is woken. It costs a
message a host and `CALL_EVERY_S`, and no transaction of its own.

Answers come the way of reports: as with silence (`liveness`), they are missed only while reports
are read.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final

from conductor.hosts.database_trust import why_distrusted
from conductor.liveness import DEAF, DISTRUSTS, HUNG, silent_before
from conductor.operations.engine.completion import locked
from conductor.operations.engine.wait_reasons import ON_HOST
from conductor.store import DeadLetter, Heartbeat, Host, UnitOfWork, identity_of
from models.ids import compute_queue
from models.messages.internal import CANARY, Canary, Obeyed, OutgoingMessage
from models.messages.internal import Heartbeat as HeartbeatMessage
from models.messages.versions import VERSION_UNSUPPORTED

CALL_EVERY_S: Final = 20.0
DEAF_AFTER_S: Final = 25.0
"""How long a canary may be on its way; with the time between two, less than a minute in all."""
CALL_THE_DEAF_EVERY_S: Final = 120.0
"""Canaries pile up in a queue that nobody reads, so few more are sent."""

_UNREAD: Final = "does not read its queue"
_GONE: Final = "is missing or not bound"


def take_heartbeat(uow: UnitOfWork, message: HeartbeatMessage) -> OutgoingMessage | None:
    """Take in a heartbeat: that the host lives, what it has heard, and what runs there for long.

    Returns a canary to send, if one is due. It is not kept in the outbox: one that is lost is
    followed by another long before it is missed.
    """
    known = uow.heartbeats.lock(message.host) or Heartbeat(message.host, "compute", uow.now)
    work = tuple(call.to_json() for call in message.running)
    obeys = message.obeys.to_json() if message.obeys else None
    seen = replace(known, kind="compute", seen_at=uow.now, work=work, obeys=obeys)
    beat = _heard(seen, message.heard_at)
    deaf = _is_deaf(uow, beat)
    due = message.heard_at is not None and uow.now - beat.called_at >= CALL_EVERY_S
    news = known.work != work or known.obeys != beat.obeys
    if deaf or due or message.hangs or known.unheard_since or news:
        host = uow.hosts.get(message.host)
        due = due and host is not None and _calls_now(host, beat, uow.now)
        if host is not None:
            why = why_distrusted(identity_of(uow), beat.obeys)
            waits = beat.unheard_since > 0
            _judge(uow, host, distrusts=why, deaf=deaf, hangs=message.hangs, waits=waits)
    if not due:
        uow.heartbeats.put(beat)
        return None
    since = beat.unheard_since or uow.now
    uow.heartbeats.put(replace(beat, called_at=uow.now, unheard_since=since))
    return _canary(uow, message.host)


def _canary(uow: UnitOfWork, host: str) -> OutgoingMessage:
    identity = identity_of(uow)
    canary = Canary(sent_at=uow.now, database=identity.id, generation=identity.generation)
    return OutgoingMessage(compute_queue(host), CANARY, canary.to_json())


def reset_canaries(uow: UnitOfWork, host: str) -> None:
    """Forget the canaries that a host has not heard: its worker has only now begun to listen."""
    known = uow.heartbeats.lock(host)
    if known is not None:
        uow.heartbeats.put(replace(known, called_at=0.0, unheard_since=0.0, work=()))


def note_obeyed(uow: UnitOfWork, name: str, obeyed: Obeyed | None) -> None:
    """Keep which database a worker that registers obeys; degrade its host if that is another."""
    known, host = uow.heartbeats.lock(name), uow.hosts.get(name)
    if known is None or host is None:
        return
    obeys = obeyed.to_json() if obeyed else None
    uow.heartbeats.put(replace(known, obeys=obeys))
    why = why_distrusted(identity_of(uow), obeys)
    if why is not None:
        _note(uow, host, _distrusts(why))


def _distrusts(why: str) -> str:
    return f"{DISTRUSTS}: {why}; see `hosts trust-database`"


def refused(uow: UnitOfWork, canary: DeadLetter) -> None:
    """Take in a canary that became a dead letter; one that was too new has been read all the same.

    Nobody waits for a canary, so it is not kept.
    """
    if not canary.reason.startswith(VERSION_UNSUPPORTED):
        return
    for beat in uow.heartbeats.where(kind="compute"):
        if compute_queue(beat.name) == canary.queue:
            reset_canaries(uow, beat.name)


def mark_unroutable(uow: UnitOfWork, queues: Collection[str]) -> list[str]:
    """Degrade the hosts of queues that no message reaches; return the names of these hosts."""
    hosts = [
        beat.name
        for beat in uow.heartbeats.where(kind="compute")
        if compute_queue(beat.name) in queues
    ]
    for name in hosts:
        host = uow.hosts.get(name)
        if host is not None:
            _note(uow, host, f"{DEAF}: its queue {compute_queue(name)} {_GONE}")
    return hosts


def _heard(beat: Heartbeat, heard_at: float | None) -> Heartbeat:
    """Return the heartbeat with what has been heard taken off what has not."""
    if heard_at is None or heard_at < beat.unheard_since:
        return beat
    # A later one may be on its way: it is then the oldest that has not been heard.
    return replace(beat, unheard_since=0.0 if heard_at >= beat.called_at else beat.called_at)


def _is_deaf(uow: UnitOfWork, beat: Heartbeat) -> bool:
    if not beat.unheard_since or uow.now - beat.unheard_since < DEAF_AFTER_S:
        return False
    return beat.unheard_since < silent_before(uow, DEAF_AFTER_S)


def _calls_now(host: Host, beat: Heartbeat, now: float) -> bool:
    unread = (host.degraded or "").startswith(DEAF) and _UNREAD in (host.degraded or "")
    return not unread or now - beat.called_at >= CALL_THE_DEAF_EVERY_S


def _judge(
    uow: UnitOfWork, host: Host, *, distrusts: str | None, deaf: bool, hangs: bool, waits: bool
) -> None:
    """Say of a host what is known now; one whose canary is on its way stays what it was."""
    was_deaf = (host.degraded or "").startswith(DEAF)
    if distrusts is not None:
        _note(uow, host, _distrusts(distrusts))
        return
    if was_deaf and (deaf or waits):
        return
    if deaf:
        reason = f"{DEAF}: it beats, but {_UNREAD} {compute_queue(host.name)}"
        _note(uow, host, reason)
    elif hangs:
        _note(uow, host, f"{HUNG}: so many calls of its hypervisor do not end")
    else:
        _note(uow, host, None)


def _note(uow: UnitOfWork, seen: Host, reason: str | None) -> None:
    """Degrade a host, or take that back; what it is degraded for otherwise outlasts it."""
    if not _is_news(seen, reason):
        return
    if reason is not None:
        _wake(uow, seen.name)  # operations before hosts, as everybody locks
    host = uow.hosts.lock(seen.name)
    if host is not None and _is_news(host, reason):
        uow.hosts.save(replace(host, degraded=reason, version=host.version + 1))


def _is_news(host: Host, reason: str | None) -> bool:
    ours = host.degraded is None or host.degraded.startswith((DEAF, DISTRUSTS, HUNG))
    return ours and host.degraded != reason


def _wake(uow: UnitOfWork, host: str) -> None:
    """Let what waits for the host be looked at now, not when it would have been."""
    for found in uow.operations.where(waiting_on=ON_HOST + host, ended_at=None):
        record = locked(uow, found.id)
        if record is not None and record.waiting_on == found.waiting_on:
            uow.operations.save(replace(record, wake_at=uow.now))


def work_of(beat: Heartbeat | None) -> list[dict[str, Any]]:
    """Return what a host says runs there for long."""
    return [] if beat is None else [dict(call) for call in beat.work]
