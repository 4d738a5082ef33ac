"""Remove a guest that no instance has on its host: an operator has looked at it and says so.

Nothing removes such a guest by itself. What proves that it may go: its host has last listed it as
unexpected, an operator's request names guest and host, and no instance is or moves there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from conductor.liveness import host_is_up
from conductor.operations.engine.definition import DispatchToHost, NewOperation, Operation, Outcome
from conductor.store import UnitOfWork
from models.errors import Rejected
from models.json_types import Json
from models.lifecycle import UNFINISHED, InstanceState
from models.messages.requests import DestroyOrphan


@dataclass(frozen=True, slots=True)
class Orphan:
    """A guest, where it is, and the newest fence that its host says it has obeyed."""

    host: str
    guest_id: str
    fence: int


destroy_orphan = Operation("destroy_orphan", Orphan)


@destroy_orphan.accept
def check(new: NewOperation, uow: UnitOfWork) -> Orphan:
    """Its host must be up and list it as unexpected, and no instance be or move there."""
    request = cast(DestroyOrphan, new.request)
    if uow.hosts.get(request.host) is None:
        raise Rejected("host_unknown", f"host is {request.host}: no such host", key="host")
    if not host_is_up(uow, request.host, new.down_after_s):
        raise Rejected("host_down", f"host is {request.host}: it is down", key="host")
    listed = uow.registrations.get(request.host)
    rows = listed.unexpected if listed is not None else ()
    found = next((row for row in rows if row["name"] == request.guest_id), None)
    if found is None:
        message = (
            f"guest_id is {request.guest_id}: {request.host} lists no such guest as unexpected; "
            "see `instances orphans list`"
        )
        raise Rejected("orphan_unknown", message, key="guest_id")
    orphan = Orphan(request.host, request.guest_id, int(found["fence"]))
    _refuse_expected(orphan, uow)
    return orphan


@destroy_orphan.step
def remove(orphan: Orphan, uow: UnitOfWork) -> Outcome[Orphan]:
    """Tell its host, under a fence newer than all that it has obeyed."""
    _refuse_expected(orphan, uow)
    instance = uow.instances.lock(orphan.guest_id)
    fence = max(orphan.fence, instance.fence if instance else 0) + 1
    if instance is not None:
        uow.instances.save(replace(instance, fence=fence, updated_at=uow.now))
    return DispatchToHost(orphan, orphan.host, orphan.guest_id, "destroy", fence=fence)


@destroy_orphan.step
def forget(orphan: Orphan, uow: UnitOfWork) -> Outcome[Orphan]:
    """List it no longer; the next report of its host says the same."""
    listed = uow.registrations.lock(orphan.host)
    if listed is not None:
        left = tuple(row for row in listed.unexpected if row["name"] != orphan.guest_id)
        gone = len(listed.unexpected) - len(left)
        count = max(0, listed.unexpected_count - gone)
        troubled = bool(count or listed.refused or listed.notes)
        uow.registrations.save(
            replace(listed, unexpected=left, unexpected_count=count, troubled=troubled)
        )
    return orphan


@destroy_orphan.result
def removed(orphan: Orphan) -> Json:
    """Return the guest, and where it was."""
    return {"host": orphan.host, "guest_id": orphan.guest_id}


def _refuse_expected(orphan: Orphan, uow: UnitOfWork) -> None:
    """Refuse a guest whose instance is there, or may be: it is no orphan any more."""
    instance = uow.instances.get(orphan.guest_id)
    here = instance is not None and instance.host == orphan.host
    moves = uow.migrations.where(instance_id=orphan.guest_id, state=tuple(UNFINISHED))
    moving = any(orphan.host in (move.source, move.target) for move in moves)
    if moving or (here and instance is not None and instance.state is not InstanceState.DELETED):
        message = f"guest_id is {orphan.guest_id}: its instance is on {orphan.host}: delete that"
        raise Rejected("guest_expected", message, key="guest_id")
