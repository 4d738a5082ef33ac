"""What the clock, a cancel and ended children do to an operation that waits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from conductor.liveness import host_is_up, is_deaf
from conductor.operations.engine import completion, dispatch, execution
from conductor.operations.engine.completion import tell
from conductor.operations.engine.context import Ids, Scope
from conductor.operations.engine.rollback import (
    all_undone,
    cancelled,
    failed,
    give_up,
    host_of,
    turn_back,
    undone,
)
from conductor.operations.engine.wait_reasons import (
    ON_CHILDREN,
    ON_HOST,
    ON_INSTANCE,
    ON_PAUSE,
    ON_SCHEDULER,
)
from conductor.store.records import OperationRecord
from models.errors import Rejected, Unreachable
from models.json_types import Json
from models.lifecycle import OperationState

_NOT_BEGUN = (ON_INSTANCE, ON_PAUSE)


def look(scope: Scope, record: OperationRecord) -> Ids:
    """Make the transition that is due, if one is."""
    began = record.waiting_on not in _NOT_BEGUN
    if record.cancel and scope.turnable(record) and record.waiting_on != ON_CHILDREN:
        return turn_back(scope, record, cancelled(record), began=began)
    if record.waiting_on == ON_CHILDREN and record.children_left <= 0:
        return _children_ended(scope, record)
    late = scope.late(record)
    if late is not None and record.waiting_on != ON_CHILDREN:
        return turn_back(scope, record, late, began=began)
    if record.wake_at is None or record.wake_at > scope.uow.now:
        return []
    return _woken(scope, record)


def _woken(scope: Scope, record: OperationRecord) -> Ids:
    waiting_on = record.waiting_on or ""
    if waiting_on == ON_PAUSE or _nobody_holds(scope, record):
        scope.save(replace(record, waiting_on=None), scope.settings.grace_s)
        return [record.id]
    if waiting_on.startswith(ON_HOST) or waiting_on == ON_SCHEDULER:
        return _silent(scope, record)
    scope.save(record, scope.settings.ask_again_s)
    return []


def _nobody_holds(scope: Scope, record: OperationRecord) -> bool:
    """Say whether an operation that waits for its instance has been forgotten there."""
    if record.waiting_on != ON_INSTANCE or record.instance_id is None:
        return False
    instance = scope.uow.instances.lock(record.instance_id)
    if instance is None or instance.operation_id == record.id:
        return True
    holder = scope.uow.operations.get(instance.operation_id or "")
    if holder is not None and not holder.state.ended:
        return False
    scope.uow.instances.save(replace(instance, operation_id=record.id))
    return True


def _silent(scope: Scope, record: OperationRecord) -> Ids:
    """An ask went unanswered: give a dead host up, ask a living one again, within its time."""
    host = host_of(record, None)
    if host and not host_is_up(scope.uow, host, scope.settings.down_after_s):
        return _host_gone(scope, record, host)
    if host and is_deaf(scope.uow.hosts.get(host)) and _goes_on_without(scope, record):
        return _host_deaf(scope, record, host)
    waiting = record.waiting or {}
    if scope.uow.now >= waiting.get("deadline", math.inf):
        error = _unanswered(host, waiting)
        if record.undoing:
            return give_up(scope, record, error)
        return failed(scope, record, error, began=True)
    if scope.uow.now < waiting.get("again_at", 0.0):
        dispatch.look_again(scope, record)
        return []
    asked = dispatch.dispatch_again(scope, record)
    tell(scope.uow, asked, "asked-again", record.waiting_on or "")
    return []


def _goes_on_without(scope: Scope, record: OperationRecord) -> bool:
    """Say whether an operation need not wait for a host that hears nothing.

    It can be turned back, or what it undoes was a mere try: the host obeys the undo, which is the
    newer instruction, once it hears again, and takes nothing new before that.
    """
    if record.undoing:
        return scope.step(record).retry_from is not None
    return scope.turnable(record)


def _host_deaf(scope: Scope, record: OperationRecord, host: str) -> Ids:
    if record.undoing:
        tell(scope.uow, record, "host-deaf", f"{host} will undo {record.step} when it hears again")
        return undone(scope, record)
    known = scope.uow.hosts.get(host)
    reason = known.degraded if known is not None else "deaf"
    error = Unreachable("host_deaf", f"{host} is {reason}", host=host)
    return failed(scope, record, error, began=True)


def _unanswered(host: str | None, waiting: Json) -> Unreachable:
    within = f"within {waiting['timeout_s']:,.0f} s"
    if host is None:
        return Unreachable("scheduler_silent", f"no scheduler answered {within}")
    message = f"{host} did not answer {waiting['verb']} {within}"
    return Unreachable("host_silent", message, host=host)


def _host_gone(scope: Scope, record: OperationRecord, host: str) -> Ids:
    """A host died on us. What it need not be alive for (`done_if_down`) counts as done."""
    if record.undoing:
        return undone(scope, record)
    if (record.waiting or {}).get("done_if_down"):
        return execution.move_on(scope, record, scope.load(record))
    return failed(scope, record, Unreachable("host_down", f"{host} went down"), began=True)


def _children_ended(scope: Scope, record: OperationRecord) -> Ids:
    if record.undoing:
        return all_undone(scope, replace(record, waiting_on=None))
    children = scope.uow.operations
    bad = (OperationState.FAILED, OperationState.STUCK)
    faults = [child.error or {} for child in children.where(parent_id=record.id, state=bad)]
    called_back = children.where(parent_id=record.id, state=OperationState.CANCELLED)
    if record.cancel or (called_back and not faults):
        reason = record.cancel or _why_called_back(called_back)
        error = Rejected("cancelled", reason).to_json()
        return _close(scope, record, OperationState.CANCELLED, error)
    if faults:
        summary = scope.definition(record).fault_of_children
        fault = (
            summary(scope.load(record), children.where(parent_id=record.id))
            if summary
            else _fault_of_children(faults)
        )
        return _close(scope, record, OperationState.FAILED, fault)
    return execution.move_on(scope, record, scope.load(record))


def _close(scope: Scope, record: OperationRecord, state: OperationState, error: Json) -> Ids:
    return completion.close(scope.uow, replace(record, error=error), state, {})


def _why_called_back(children: Sequence[OperationRecord]) -> str:
    reason = str((children[0].error or {}).get("message", "cancelled"))
    others = len(children) - 1
    return f"{reason}, and {others} more" if others else reason


def _fault_of_children(faults: list[Json]) -> Json:
    if len(faults) == 1:
        return faults[0]
    message = f"{len(faults)} instances failed, the first because: {faults[0].get('message', '')}"
    # What all have in common, else the first: refusals of hosts are no lack of hosts.
    return {"kind": faults[0].get("kind", "Broken"), "code": "children_failed", "message": message}
