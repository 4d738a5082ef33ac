"""The move that awaits confirmation or revert."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from conductor.operations.engine.definition import IsMet, NewOperation
from conductor.operations.steps.move_steps import Move
from conductor.store import OperationRecord, UnitOfWork
from models.errors import Rejected
from models.lifecycle import InstanceState, MigrationState, TaskState
from models.messages.requests import InstanceRequest, Request


def begin_decision(new: NewOperation, uow: UnitOfWork, task_state: TaskState) -> Move:
    """Write the task state and return the newest finished move; `Rejected` when none waits."""
    request = cast(InstanceRequest, new.request)
    instance = uow.instances.get(request.instance_id)
    finished = uow.migrations.where(instance_id=request.instance_id, state=MigrationState.FINISHED)
    if instance is None or instance.state is not InstanceState.RESIZED or not finished:
        state = instance.state if instance else "unknown"
        message = f"instance_id is {request.instance_id}: it is {state}, no move awaits"
        raise Rejected("instance_state", message, key="instance_id")
    uow.instances.save(replace(instance, task_state=task_state, updated_at=uow.now))
    return Move(instance.id, finished[-1].id)


def decided(state: MigrationState) -> IsMet:
    """Return what says that the move which an operation was about has ended in `state` already."""

    def is_met(_: Request, old: OperationRecord, uow: UnitOfWork) -> str | None:
        migration = uow.migrations.get(str(old.data.get("migration_id", "")))
        met = migration is not None and migration.state is state
        return f"its move is {state} already" if met else None

    return is_met
