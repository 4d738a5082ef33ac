"""Wake-up: what timeouts, a cancel and ended children do to an operation that waits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from conductor.liveness import host_is_up, is_deaf
from conductor.operations.engine import completion, dispatch, execution
from conductor.operations.engine.completion import add_event
from conductor.operations.engine.context import Ids, TransitionContext
from conductor.operations.engine.rollback import (
    after_undo,
    cancelled,
    finish_rollback,
    give_up,
    handle_failure,
    host_of,
    roll_back,
)
from conductor.operations.engine.wait_reasons import (
    ON_CHILDREN,
    ON_HOST,
    ON_INSTANCE,
    ON_PAUSE,
    ON_SCHEDULER,
)
from conductor.store import OperationRecord
from models.errors import Rejected, Unreachable
from models.json_types import Json
from models.lifecycle import OperationState

_NOT_BEGUN = (ON_INSTANCE, ON_PAUSE)


def look(context: TransitionContext, record: OperationRecord) -> Ids:
    """Make the transition that is due, if one is."""
    began = record.waiting_on not in _NOT_BEGUN
    if record.cancel and context.can_roll_back(record) and record.waiting_on != ON_CHILDREN:
        return roll_back(context, record, cancelled(record), began=began)
    if record.waiting_on == ON_CHILDREN and record.children_left <= 0:
        return _children_ended(context, record)
    late = context.deadline_error(record)
    if late is not None and record.waiting_on != ON_CHILDREN:
        return roll_back(context, record, late, began=began)
    if record.wake_at is None or record.wake_at > context.uow.now:
        return []
    return _woken(context, record)


def _woken(context: TransitionContext, record: OperationRecord) -> Ids:
    waiting_on = record.waiting_on or ""
    if waiting_on == ON_PAUSE or _is_next_on_instance(context, record):
        context.save(replace(record, waiting_on=None), context.settings.grace_s)
        return [record.id]
    if waiting_on.startswith(ON_HOST) or waiting_on == ON_SCHEDULER:
        return _silent(context, record)
    context.save(record, context.settings.ask_again_s)
    return []


def _is_next_on_instance(context: TransitionContext, record: OperationRecord) -> bool:
    """Say whether nothing runs on the instance that an operation waits for; it gets it then."""
    if record.waiting_on != ON_INSTANCE or record.instance_id is None:
        return False
    instance = context.uow.instances.lock(record.instance_id)
    if instance is None or instance.operation_id == record.id:
        return True
    holder = context.uow.operations.get(instance.operation_id or "")
    if holder is not None and not holder.state.ended:
        return False
    context.uow.instances.save(replace(instance, operation_id=record.id))
    return True


def _silent(context: TransitionContext, record: OperationRecord) -> Ids:
    """No reply yet: give a dead host up, dispatch to a living one again, until the deadline."""
    host = host_of(record, None)
    if host and not host_is_up(context.uow, host, context.settings.down_after_s):
        return _host_gone(context, record, host)
    if host and is_deaf(context.uow.hosts.get(host)) and _goes_on_without(context, record):
        return _host_deaf(context, record, host)
    waiting = record.waiting or {}
    if context.uow.now >= waiting.get("deadline", math.inf):
        error = _unanswered(host, waiting)
        if record.undoing:
            return give_up(context, record, error)
        return handle_failure(context, record, error, began=True)
    if context.uow.now < waiting.get("again_at", 0.0):
        dispatch.look_again(context, record)
        return []
    again = dispatch.dispatch_again(context, record)
    add_event(context.uow, again, "asked-again", record.waiting_on or "")
    return []


def _goes_on_without(context: TransitionContext, record: OperationRecord) -> bool:
    """Say whether an operation need not wait for a deaf host.

    It can be rolled back, or what it undoes was one of several attempts: the host obeys the undo,
    which has the newer fence, once it hears again, and is given nothing new before that.
    """
    if record.undoing:
        return context.step(record).retry_from is not None
    return context.can_roll_back(record)


def _host_deaf(context: TransitionContext, record: OperationRecord, host: str) -> Ids:
    if record.undoing:
        add_event(
            context.uow, record, "host-deaf", f"{host} will undo {record.step} when it hears again"
        )
        return after_undo(context, record)
    known = context.uow.hosts.get(host)
    reason = known.degraded if known is not None else "deaf"
    error = Unreachable("host_deaf", f"{host} is {reason}", host=host)
    return handle_failure(context, record, error, began=True)


def _unanswered(host: str | None, waiting: Json) -> Unreachable:
    within = f"within {waiting['timeout_s']:,.0f} s"
    if host is None:
        return Unreachable("scheduler_silent", f"no scheduler answered {within}")
    message = f"{host} did not answer {waiting['verb']} {within}"
    return Unreachable("host_silent", message, host=host)


def _host_gone(context: TransitionContext, record: OperationRecord, host: str) -> Ids:
    """The host went down; what it need not be alive for (`done_if_down`) counts as done."""
    if record.undoing:
        return after_undo(context, record)
    if (record.waiting or {}).get("done_if_down"):
        return execution.move_on(context, record, context.load(record))
    return handle_failure(
        context, record, Unreachable("host_down", f"{host} went down"), began=True
    )


def _children_ended(context: TransitionContext, record: OperationRecord) -> Ids:
    if record.undoing:
        return finish_rollback(context, replace(record, waiting_on=None))
    children = context.uow.operations
    bad = (OperationState.FAILED, OperationState.STUCK)
    faults = [child.error or {} for child in children.where(parent_id=record.id, state=bad)]
    cancelled_children = children.where(parent_id=record.id, state=OperationState.CANCELLED)
    if record.cancel or (cancelled_children and not faults):
        reason = record.cancel or _cancel_reason(cancelled_children)
        error = Rejected("cancelled", reason).to_json()
        return _close(context, record, OperationState.CANCELLED, error)
    if faults:
        summary = context.definition(record).fault_of_children
        fault = (
            summary(context.load(record), children.where(parent_id=record.id))
            if summary
            else _fault_of_children(faults)
        )
        return _close(context, record, OperationState.FAILED, fault)
    return execution.move_on(context, record, context.load(record))


def _close(
    context: TransitionContext, record: OperationRecord, state: OperationState, error: Json
) -> Ids:
    return completion.close(context.uow, replace(record, error=error), state, {})


def _cancel_reason(children: Sequence[OperationRecord]) -> str:
    reason = str((children[0].error or {}).get("message", "cancelled"))
    others = len(children) - 1
    return f"{reason}, and {others} more" if others else reason


def _fault_of_children(faults: list[Json]) -> Json:
    if len(faults) == 1:
        return faults[0]
    message = f"{len(faults)} instances failed, the first because: {faults[0].get('message', '')}"
    # What all have in common, else the first: refusals of hosts are no lack of hosts.
    return {"kind": faults[0].get("kind", "Broken"), "code": "children_failed", "message": message}
