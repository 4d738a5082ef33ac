"""What hosts report: guests that they have are compared with those that they should have."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

from conductor.hosts import must_lock
from conductor.operations.instances import lost_guest, without_guest
from conductor.operations.waits import ON_HOST
from conductor.store.ports import UnitOfWork
from conductor.store.records import Heartbeat, Host, Instance
from models.lifecycle import UNFINISHED, InstanceState, PowerState
from models.messages.letters import (
    Domain,
    Instruction,
    Manifest,
    Progress,
    Token,
    instruction_letter,
)

BAD_ACCOUNTING = "accounting degraded"
SETTLED_S = 30.0
"""How long an instance must have been left alone before a host's word changes its state."""

_MAY_RUN = (InstanceState.ACTIVE, InstanceState.STOPPED)


def heard_of(uow: UnitOfWork, host: str, reported_at: float = 0.0) -> None:
    """Note that a host lives, and how new its newest list of guests is."""
    known = uow.heartbeats.lock(host)
    newest = max(reported_at, known.reported_at if known else 0.0)
    uow.heartbeats.put(Heartbeat(host, "compute", uow.now, newest))


def reconcile(uow: UnitOfWork, manifest: Manifest) -> None:
    """Compare what a host has with what it should have: drop strays, note what is missing.

    A list that was made before one that has been taken in already says nothing any more.
    """
    known = uow.heartbeats.lock(manifest.host)
    heard_of(uow, manifest.host, manifest.taken_at)
    if uow.hosts.get(manifest.host) is None or (
        known is not None and manifest.taken_at < known.reported_at
    ):
        return
    expected = {i.id: i for i in uow.instances.where(host=manifest.host)}
    for domain in manifest.domains:
        instance = expected.get(domain.instance_id) or uow.instances.lock(domain.instance_id)
        if _is_stray(uow, instance, manifest.host):
            _drop(uow, manifest.host, domain, instance)
    present = {domain.instance_id: domain for domain in manifest.domains}
    for instance in expected.values():
        _note_difference(uow, instance, present.get(instance.id))
    _note_accounting(uow, manifest.accounting_degraded, manifest.host)


def note_progress(uow: UnitOfWork, progress: Progress) -> None:
    """Write how far the copy of a live migration is, unless it is old news."""
    record = uow.operations.get(progress.token.operation_id)
    if record is None or record.sequence != progress.token.sequence:
        return
    for move in uow.migrations.where(instance_id=record.instance_id, state=tuple(UNFINISHED)):
        if move.operation_id == record.id and move.progress_percent < progress.percent:
            uow.migrations.save(replace(move, progress_percent=progress.percent))


def _is_stray(uow: UnitOfWork, instance: Instance | None, host: str) -> bool:
    """Say whether a guest has no business on this host: nobody knows it, or it lives elsewhere."""
    if instance is None or instance.state is InstanceState.DELETED:
        return True
    if instance.host == host or _moves_through(uow, instance, host):
        return False
    return instance.operation_id is None or not _may_be_undoing(uow, instance, host)


def _moves_through(uow: UnitOfWork, instance: Instance, host: str) -> bool:
    """Say whether an unfinished move has, or may have, a guest of the instance on the host."""
    moves = uow.migrations.where(instance_id=instance.id, state=tuple(UNFINISHED))
    return any(host in (move.source, move.target) for move in moves)


def _may_be_undoing(uow: UnitOfWork, instance: Instance, host: str) -> bool:
    record = uow.operations.get(instance.operation_id or "")
    return record is not None and record.waiting_on == ON_HOST + host


def _drop(uow: UnitOfWork, host: str, domain: Domain, instance: Instance | None) -> None:
    """Tell a host to remove a stray, under a fence that is newer than all it has seen."""
    fence = max(domain.fence, instance.fence if instance else 0) + 1
    if instance is not None:
        uow.instances.save(replace(instance, fence=fence))
    token = Token(
        operation_id=str(uuid.uuid5(uuid.UUID(domain.instance_id), f"stray-on-{host}-{fence}")),
        step="drop_stray",
        attempt=1,
        sequence=1,
        fence=fence,
    )
    instruction = Instruction(token=token, instance_id=domain.instance_id, verb="destroy")
    uow.post(instruction_letter(host, instruction, token.operation_id))


def _note_difference(uow: UnitOfWork, instance: Instance, domain: Domain | None) -> None:
    """Let an idle instance say what its host says of it; one at work is its operation's.

    What changed a moment ago may be newer than the host's list, so it is left for the next.
    A guest that was missed and is there again is well again.
    """
    if _as_reported(instance, domain, uow.now) == instance:
        return
    newest = uow.instances.lock(instance.id)
    if newest is not None and newest.host == instance.host:
        changed = _as_reported(newest, domain, uow.now)
        uow.instances.save(replace(changed, updated_at=uow.now))


def _as_reported(instance: Instance, domain: Domain | None, now: float) -> Instance:
    if instance.operation_id is not None or now - instance.updated_at < SETTLED_S:
        return instance
    if domain is None:
        return _without_guest(instance)
    known_to_run = instance.state in _MAY_RUN or _was_missed(instance)
    return _as_powered(instance, domain) if known_to_run else instance


def _without_guest(instance: Instance) -> Instance:
    if instance.state not in _MAY_RUN:
        return instance
    return without_guest(instance)


def _as_powered(instance: Instance, domain: Domain) -> Instance:
    on = domain.power_state == "running"
    return replace(
        instance,
        state=InstanceState.ACTIVE if on else InstanceState.STOPPED,
        power_state=PowerState.RUNNING if on else PowerState.SHUTDOWN,
        fault=None if _was_missed(instance) else instance.fault,
    )


def _was_missed(instance: Instance) -> bool:
    return lost_guest(instance) is not None


def _note_accounting(uow: UnitOfWork, sick: Sequence[str], name: str) -> None:
    """A host that cannot account for a guest takes no new ones until it can again (N33)."""
    reason = f"{BAD_ACCOUNTING}: {', '.join(sick[:5])}" if sick else None
    seen = uow.hosts.get(name)
    if seen is None or not _is_news(seen, reason):
        return
    host = must_lock(uow, name)
    if _is_news(host, reason):
        uow.hosts.save(replace(host, degraded=reason, version=host.version + 1))


def _is_news(host: Host, reason: str | None) -> bool:
    if host.degraded is not None and not host.degraded.startswith(BAD_ACCOUNTING):
        return False  # degraded for another reason, which outlasts a guest that is well again
    return host.degraded != reason
