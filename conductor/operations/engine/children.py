"""Child operations: created with their parent, and started by it at a step of its choice."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from conductor.operations.engine.completion import add_event
from conductor.operations.engine.definition import NewOperation, Operation, Step
from conductor.operations.engine.publish_notifications import notify
from conductor.operations.engine.wait_reasons import ON_PARENT
from conductor.store import Instance, OperationRecord, UnitOfWork
from models.errors import Rejected
from models.lifecycle import OperationState

S = TypeVar("S")
ORPHANED_AFTER_S: Final = 60.0
"""When a child is looked at by itself, should its parent have died before it let it go."""


def new_child(
    parent: NewOperation,
    definition: Operation[S],
    name: str,
    state: S,
    now: float,
    *,
    instance_id: str | None = None,
) -> OperationRecord:
    """Return a child operation at its first step, its id derived from its parent's and `name`.

    It waits until `start_child` is called for it, or another child of its parent has ended.
    """
    context = parent.request.context
    return OperationRecord(
        id=str(uuid.uuid5(uuid.UUID(parent.id), name)),
        kind=definition.kind,
        definition_version=definition.version,
        state=OperationState.ACCEPTED,
        step=definition.steps[0].name,
        project_id=context.project_id,
        user_id=context.user_id,
        request_id=context.request_id,
        request={},
        digest="",
        data=definition.dump(state),
        created_at=now,
        updated_at=now,
        instance_id=instance_id,
        parent_id=parent.id,
        root_id=parent.id,
        waiting_on=ON_PARENT,
        wake_at=now + ORPHANED_AFTER_S,
        deadline_at=now + (parent.request.deadline_s or definition.deadline_s),
    )


def ready(child: OperationRecord) -> OperationRecord:
    """Return a new child that goes on as soon as its parent awaits its children."""
    return replace(child, waiting_on=None)


def add_children(
    uow: UnitOfWork, children: Sequence[OperationRecord], instances: Sequence[Instance]
) -> None:
    """Write children of one instance each, in the same order, and notify of their start."""
    uow.operations.add_many(children)
    for child, instance in zip(children, instances, strict=True):
        notify(uow, child, instance)


def add_cancelled(uow: UnitOfWork, child: OperationRecord, reason: str) -> None:
    """Write a child that was cancelled before it was created."""
    error = Rejected("cancelled", reason, step=child.step).to_json()
    ended = replace(
        child,
        state=OperationState.CANCELLED,
        error=error,
        waiting_on=None,
        wake_at=None,
        ended_at=uow.now,
    )
    uow.operations.add(ended)
    add_event(uow, ended, "cancelled", error["message"])


def start_child(
    uow: UnitOfWork,
    definition: Operation[S],
    operation_id: str,
    at: Step[S],
    change: Callable[[S], S],
    state: OperationState = OperationState.RUNNING,
) -> None:
    """Let a child that waits for its parent go on at a step, with its state changed.

    One that does not wait any more was cancelled meanwhile and is left alone. The caller has
    locked the child's instance.
    """
    child = uow.operations.lock(operation_id)
    if child is None or child.waiting_on != ON_PARENT:
        return
    changed = change(definition.load(child.data))
    uow.operations.save(
        replace(
            child,
            data=definition.dump(changed),
            step=at.name,
            state=state,
            waiting_on=None,
            wake_at=uow.now,
        )
    )
