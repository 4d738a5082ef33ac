"""What hosts report: guests that they have are compared with those that they should have.

A guest is never removed because it is not known. The one reason to remove it is a recorded removal:
an operation on that very instance had it removed from that very host, under a fence that is newer
than all that the guest has seen; then the same is asked once more, under that fence. Every other
guest that is not expected (foreign ones, ones without a record, ones recorded elsewhere, ones that
are newer than their record because an older copy of the database was restored) stays as it is, is
listed with its host, and is counted.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from conductor.hosts.host_administration import must_lock
from conductor.operations.engine.dispatch import DESTROY
from conductor.operations.engine.fences import removal_of
from conductor.operations.engine.wait_reasons import ON_HOST, awaits
from conductor.operations.steps.instance_steps import lost_guest, without_guest
from conductor.placement.consistency.changed_hardware import refresh_reason
from conductor.placement.consistency.guest_differences import GUESTS_DIFFER, difference
from conductor.store import Host, Instance, Registration, Removal, UnitOfWork, identity_of
from models.ids import is_uuid
from models.json_types import Json
from models.lifecycle import UNFINISHED, InstanceState, PowerState
from models.messages.internal import (
    Domain,
    Instruction,
    InventoryReport,
    Progress,
    Token,
    instruction_message,
)
from models.messages.json_safety import shown_name

log = structlog.get_logger(__name__)

CRASHED: Final = PowerState.CRASHED.value
BAD_ACCOUNTING = "accounting degraded"
SETTLED_S = 30.0
"""How long an instance must have been left alone before a host's report changes its state."""
LISTED_MOST = 100
"""How many unexpected guests of a host are kept by name; all are counted."""

_STATES: Final = {
    "running": (InstanceState.ACTIVE, PowerState.RUNNING),
    "paused": (InstanceState.PAUSED, PowerState.PAUSED),
    "suspended": (InstanceState.SUSPENDED, PowerState.SUSPENDED),
    "shutdown": (InstanceState.STOPPED, PowerState.SHUTDOWN),
    CRASHED: (InstanceState.STOPPED, PowerState.CRASHED),
}
"""What an instance is whose guest is left to itself, by what its host says of its power."""
_MAY_RUN = frozenset(state for state, _ in _STATES.values())


@dataclass(frozen=True, slots=True)
class Unexpected:
    """A guest that is left alone, and why it is not one that its host should have."""

    name: str
    fence: int
    reason: str

    def to_json(self) -> Json:
        """Return what is kept and shown of it."""
        return {"name": self.name, "fence": self.fence, "reason": self.reason}


def reconcile(uow: UnitOfWork, inventory_report: InventoryReport) -> None:
    """Compare what a host has with what it should have: note what is missing or unexpected.

    The caller has made sure that no newer list has been taken in, and that its sender serves the
    host.
    """
    expected = {i.id: i for i in uow.instances.where(host=inventory_report.host)}
    judged = [
        _judged(uow, domain, expected, inventory_report.host) for domain in inventory_report.domains
    ]
    _note_unexpected(
        uow, inventory_report.host, [unexpected for unexpected in judged if unexpected is not None]
    )
    present = {domain.instance_id: domain for domain in inventory_report.domains}
    for instance in expected.values():
        _note_difference(uow, instance, present.get(instance.id))
    differing = [
        text
        for instance in expected.values()
        if (text := _differing(instance, present.get(instance.id), uow.now)) is not None
    ]
    _note_accounting(uow, inventory_report.accounting_degraded, differing, inventory_report.host)
    refresh_reason(uow, inventory_report.host)


def note_progress(uow: UnitOfWork, progress: Progress) -> bool:
    """Write how far the copy of a live migration is; return whether its host is at it."""
    record = uow.operations.get(progress.token.operation_id)
    if record is None or not awaits(record, progress.token, progress.sender):
        return False
    for move in uow.migrations.where(instance_id=record.instance_id, state=tuple(UNFINISHED)):
        if move.operation_id == record.id and move.progress_percent < progress.percent:
            uow.migrations.save(replace(move, progress_percent=progress.percent))
    return True


def why_unexpected(domain: Domain, instance: Instance | None, host: str) -> str | None:
    """Return why a guest is not one that the host should have at rest, None when it is."""
    if not is_uuid(domain.instance_id):
        return "foreign: its name is no instance's id"
    if instance is None:
        return "no instance of this id has a record"
    if domain.fence > instance.fence:
        # Fences are written before they are sent, so this database is older than the guest.
        return (
            f"it is newer than its record: it has obeyed fence {domain.fence}, "
            f"the record knows {instance.fence}"
        )
    if instance.state is InstanceState.DELETED:
        return "its instance is deleted, and nothing shows that it was removed here"
    if instance.host != host:
        return f"its instance is on {instance.host or 'no host'}, and no move shows that it left"
    return None


def is_leftover(domain: Domain, instance: Instance | None, host: str, was: Removal | None) -> bool:
    """Say whether an operation on this instance has removed this guest from this host already.

    The record must still be there, the instance not be here, and the removal be newer than all
    that the guest has obeyed, which its host has to know (fence 0: its journal was lost).
    """
    if instance is None or was is None:
        return False
    same = (was.instance_id, was.host) == (domain.instance_id, host) == (instance.id, host)
    return same and instance.host != host and 0 < domain.fence < was.fence <= instance.fence


def _judged(
    uow: UnitOfWork, domain: Domain, expected: dict[str, Instance], host: str
) -> Unexpected | None:
    """Remove what has been removed already; return what is unexpected, None where all is well."""
    name, here = domain.instance_id, expected.get(domain.instance_id)
    # What is no id is not looked up: a name may be anything, also what no database takes.
    instance = here or (uow.instances.get(name) if is_uuid(name) else None)
    reason = why_unexpected(domain, instance, host)
    if reason is None or (instance is not None and _is_busy(uow, instance, host)):
        return None
    removal = removal_of(uow, instance.id, host) if instance is not None else None
    if removal is not None and is_leftover(domain, instance, host, removal):
        _remove_again(uow, removal)
        return None
    if removal is not None and not domain.fence:
        reason = f"{reason}; its host does not know what it has obeyed: it may have been made since"
    return Unexpected(shown_name(name), domain.fence, reason)


def _is_busy(uow: UnitOfWork, instance: Instance, host: str) -> bool:
    """Say whether an operation may have a guest of the instance on the host just now."""
    moves = uow.migrations.where(instance_id=instance.id, state=tuple(UNFINISHED))
    if any(host in (move.source, move.target) for move in moves):
        return True
    record = uow.operations.get(instance.operation_id) if instance.operation_id else None
    return record is not None and record.waiting_on == ON_HOST + host


def _remove_again(uow: UnitOfWork, removal: Removal) -> None:
    """Send the removal of a guest once more, under the fence of the operation that did so."""
    name = f"removed from {removal.host} under {removal.fence}"
    token = Token(
        operation_id=str(uuid.uuid5(uuid.UUID(removal.instance_id), name)),
        step="remove_again",
        attempt=1,
        sequence=1,
        fence=removal.fence,
        root_id=removal.operation_id,
    )
    instruction = Instruction(
        token=token,
        instance_id=removal.instance_id,
        verb=DESTROY,
        host=removal.host,
        database=identity_of(uow).id,
    )
    uow.post(instruction_message(removal.host, instruction, removal.operation_id))


def _note_unexpected(uow: UnitOfWork, host: str, found: Sequence[Unexpected]) -> None:
    """Keep which guests of a host are left alone and why, and say so once."""
    known = uow.registrations.lock(host)
    if known is None:
        return
    named = tuple(unexpected.to_json() for unexpected in found[:LISTED_MOST])
    if (known.unexpected, known.unexpected_count) == (named, len(found)):
        return
    uow.registrations.save(
        with_trouble(replace(known, unexpected=named, unexpected_count=len(found)))
    )
    if found:
        log.warning(
            "unexpected guests are left alone",
            host=host,
            count=len(found),
            first=[f"{unexpected.name}: {unexpected.reason}" for unexpected in found[:5]],
        )


def with_trouble(registration: Registration) -> Registration:
    """Return a registration that says whether there is something to look at."""
    troubled = bool(registration.unexpected_count or registration.refused or registration.notes)
    return replace(registration, troubled=troubled)


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
    if domain.power_state == "nostate":
        return instance  # it cannot be read, which says nothing of whether it runs
    state, power_state = _STATES[domain.power_state]
    fault = None if _was_missed(instance) else instance.fault
    if power_state is PowerState.CRASHED and instance.power_state is not power_state:
        message = f"its guest crashed on {instance.host}: start it anew"
        fault = {"code": "guest_crashed", "message": message, "data": {}}
    return replace(instance, state=state, power_state=power_state, fault=fault)


def _was_missed(instance: Instance) -> bool:
    return lost_guest(instance) is not None


def _differing(instance: Instance, domain: Domain | None, now: float) -> str | None:
    """Return how the guest of an idle instance is otherwise than the database says, if it is."""
    idle = instance.operation_id is None and now - instance.updated_at >= SETTLED_S
    if domain is None or not idle or instance.state not in _MAY_RUN:
        return None
    return difference(instance, domain)


def _note_accounting(
    uow: UnitOfWork, sick: Sequence[str], differing: Sequence[str], name: str
) -> None:
    """Close a host that cannot account for a guest, or has one otherwise than the database.

    It takes no new guests until it can again: what that guest really has would be sold twice.
    """
    reason = f"{BAD_ACCOUNTING}: {', '.join(sick[:5])}" if sick else None
    if reason is None and differing:
        reason = f"{GUESTS_DIFFER}: {'; '.join(differing[:5])}"
    seen = uow.hosts.get(name)
    if seen is None or not _is_news(seen, reason):
        return
    host = must_lock(uow, name)
    if _is_news(host, reason):
        uow.hosts.save(replace(host, degraded=reason, version=host.version + 1))


def _is_news(host: Host, reason: str | None) -> bool:
    if host.degraded is not None and not host.degraded.startswith((BAD_ACCOUNTING, GUESTS_DIFFER)):
        return False  # degraded for another reason, which outlasts a guest that is well again
    return host.degraded != reason
