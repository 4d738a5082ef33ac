"""Completion: the fault that an operation leaves, its notifications, and what can go on next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from conductor.operations.engine.publish_notifications import notify
from conductor.operations.engine.wait_reasons import ON_CHILDREN, ON_INSTANCE, ON_PARENT
from conductor.store import Event, Instance, OperationRecord, UnitOfWork
from models.json_types import Json
from models.lifecycle import OperationState
from models.messages.answers import OperationEnded, answer_message


def locked(uow: UnitOfWork, operation_id: str) -> OperationRecord | None:
    """Lock an operation behind its instance: always in that order, so that none deadlock."""
    record = uow.operations.get(operation_id)
    if record is None or record.state.ended:
        return record
    if record.instance_id is not None:
        uow.instances.lock(record.instance_id)
    return uow.operations.lock(operation_id)


def add_event(uow: UnitOfWork, record: OperationRecord, event: str, detail: str = "") -> None:
    """Add an event to the history of an operation."""
    uow.events.add(Event(record.id, uow.now, event, detail, record.instance_id))


def fault_of(attempts: Sequence[Json], error: Json) -> Json:
    """Return the fault that names every host that was tried and why it failed, then the end.

    With one cause it is that cause itself, so that its code stays what it was.
    """
    tried = [attempt for attempt in attempts if attempt.get("host")]
    if not tried or (len(tried) == 1 and tried[0]["error"] == error):
        return error
    reasons = _collapsed(f"{a['host']}: {a['error']['message']}" for a in tried)
    if error != tried[-1]["error"]:
        reasons.append(f"then {error['message']}")
    return {
        "kind": error.get("kind", "Broken"),
        "code": "max_retries_exceeded",
        "message": f"{_attempts(len(tried))} failed. " + "; ".join(reasons),
        "data": {"attempts": [dict(attempt) for attempt in tried]},
    }


def _collapsed(reasons: Iterable[str]) -> list[str]:
    """Return reasons in their order; one that came several times in a row says how often."""
    runs = [(reason, len(list(same))) for reason, same in groupby(reasons)]
    return [reason if times == 1 else f"{reason} ({times} times)" for reason, times in runs]


def _attempts(number: int) -> str:
    return "1 attempt" if number == 1 else f"{number} attempts"


def close(
    uow: UnitOfWork, record: OperationRecord, state: OperationState, result: Json
) -> list[str]:
    """Write the end of an operation and return the operations that can go on because of it."""
    ended = replace(
        record,
        state=state,
        waiting=None,
        waiting_on=None,
        resume_step=None,
        wake_at=None,
        updated_at=uow.now,
        ended_at=uow.now,
    )
    uow.operations.save(ended)
    add_event(uow, ended, state.value.lower(), (ended.error or {}).get("message", ""))
    _answer_caller(uow, ended, result)
    instance = uow.instances.lock(ended.instance_id) if ended.instance_id else None
    notify(uow, ended, instance)
    next_ids = [] if instance is None else _let_next_run(uow, ended, instance)
    return [*next_ids, *_wake_parent(uow, ended)]


def _answer_caller(uow: UnitOfWork, record: OperationRecord, result: Json) -> None:
    if record.reply_to is None:
        return
    body = {
        "operation_id": record.id,
        "kind": record.kind,
        "state": record.state.value,
        "result": dict(result),
        "error": None if record.error is None else dict(record.error),
    }
    uow.post(answer_message(record.reply_to, OperationEnded.model_validate(body)))


def _let_next_run(uow: UnitOfWork, record: OperationRecord, instance: Instance) -> list[str]:
    """Free the instance, or hand it to the operation that has waited for it longest."""
    if instance.operation_id != record.id:
        return []
    waiting = uow.operations.where(
        instance_id=instance.id, waiting_on=ON_INSTANCE, ended_at=None, limit=1
    )
    next_id = waiting[0].id if waiting else None
    freed = replace(instance, operation_id=next_id)
    if record.state is OperationState.STUCK:
        # Nobody works on it any more; its owner must see that, and why.
        freed = replace(freed, task_state=None, fault=record.error, updated_at=uow.now)
    uow.instances.save(freed)
    if next_id is None:
        return []
    uow.operations.save(replace(waiting[0], waiting_on=None, wake_at=uow.now))
    return [next_id]


def _next_child(uow: UnitOfWork, parent: OperationRecord) -> list[str]:
    """Let the next child go of a parent that lets few at once; its time begins now."""
    if parent.waiting_on != ON_CHILDREN or parent.undoing or parent.cancel is not None:
        return []
    for child in uow.operations.where(
        parent_id=parent.id, waiting_on=ON_PARENT, ended_at=None, limit=1
    ):
        waited_s = uow.now - child.created_at
        deadline = None if child.deadline_at is None else child.deadline_at + waited_s
        uow.operations.save(replace(child, waiting_on=None, wake_at=uow.now, deadline_at=deadline))
        return [child.id]
    return []


def _wake_parent(uow: UnitOfWork, record: OperationRecord) -> list[str]:
    if record.parent_id is None:
        return []
    parent = uow.operations.lock(record.parent_id)
    if parent is None or parent.state.ended:
        return []
    left = parent.children_left - 1
    following = _next_child(uow, parent)
    goes_on = left <= 0 and parent.waiting_on == ON_CHILDREN
    # Due at once, so that the reaper goes on with it should this process die before it does.
    wake_at = uow.now if goes_on else parent.wake_at
    uow.operations.save(replace(parent, children_left=left, wake_at=wake_at, updated_at=uow.now))
    return [*following, *([parent.id] if goes_on else [])]
