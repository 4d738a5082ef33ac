"""Delete an instance, whatever else is being done to it; twice, or too early, is success too."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from conductor.operations.engine.definition import DispatchToHost, NewOperation, Operation, Outcome
from conductor.operations.steps.instance_steps import leave_as_it_was, must_get
from conductor.placement.local import instance_allocations
from conductor.store import Instance, Migration, OperationRecord, UnitOfWork
from models.hardware import Flavor
from models.json_types import Json
from models.lifecycle import InstanceState, MigrationState, PowerState, TaskState
from models.messages.requests import DeleteInstance, Request


@dataclass(frozen=True, slots=True)
class Delete:
    """What is being deleted."""

    instance_id: str


delete_instance = Operation("delete_instance", Delete, when_busy="supersede")


@delete_instance.accept
def mark(new: NewOperation, uow: UnitOfWork) -> Delete:
    """Say that it is going; of an id never seen, leave a mark that its build will find.

    Requests overtake each other between several conductors: a delete that comes before its
    build must win all the same.
    """
    request = cast(DeleteInstance, new.request)
    instance = uow.instances.lock(request.instance_id)
    if instance is None:
        uow.instances.add(_never_built(request, uow.now))
    elif instance.state is not InstanceState.DELETED:
        uow.instances.save(replace(instance, task_state=TaskState.DELETING))
    return Delete(request.instance_id)


@delete_instance.pivot
def destroy(delete: Delete, uow: UnitOfWork) -> Outcome[Delete]:
    """Remove the guest; a dead host does so when it comes back."""
    instance = must_get(uow, delete.instance_id)
    if instance.state is InstanceState.DELETED or instance.host is None:
        return delete
    uow.instances.save(replace(instance, task_state=TaskState.DELETING))
    return DispatchToHost(delete, instance.host, instance.id, "destroy", done_if_down=True)


@delete_instance.step
def destroy_at_source(delete: Delete, uow: UnitOfWork) -> Outcome[Delete]:
    """Of a move that awaits confirmation, remove the guest that its source has kept."""
    move = _awaiting(delete, uow)
    if move is None or move.source == move.target:
        return delete
    return DispatchToHost(delete, move.source, delete.instance_id, "destroy", done_if_down=True)


@delete_instance.step
def release(delete: Delete, uow: UnitOfWork) -> Outcome[Delete]:
    """Give everything back, on both ends of a move, and keep the record as history."""
    instance = must_get(uow, delete.instance_id)
    if instance.state is InstanceState.DELETED:
        return delete
    move = _awaiting(delete, uow)
    if move is not None:
        instance_allocations.release_source(uow, move)
        uow.migrations.save(replace(move, state=MigrationState.CONFIRMED, updated_at=uow.now))
    uow.instances.save(
        replace(
            instance_allocations.release_instance(uow, instance),
            state=InstanceState.DELETED,
            task_state=None,
            power_state=PowerState.NOSTATE,
            deleted_at=uow.now,
            updated_at=uow.now,
        )
    )
    return delete


@delete_instance.failed
def keep(delete: Delete, fault: Json, uow: UnitOfWork) -> None:
    """The host would not remove it: it is still there, with the fault."""
    leave_as_it_was(uow, delete.instance_id, fault)


@delete_instance.result
def deleted(delete: Delete) -> Json:
    """Return the id of the instance."""
    return {"instance_id": delete.instance_id}


@delete_instance.met
def is_met(_: Request, old: OperationRecord, uow: UnitOfWork) -> str | None:
    """Say that it is gone already, if it is."""
    instance = uow.instances.get(old.instance_id or "")
    gone = instance is None or instance.state is InstanceState.DELETED
    return "it has been deleted already" if gone else None


def _awaiting(delete: Delete, uow: UnitOfWork) -> Migration | None:
    moves = uow.migrations.where(instance_id=delete.instance_id, state=MigrationState.FINISHED)
    return moves[-1] if moves else None


def _never_built(request: DeleteInstance, now: float) -> Instance:
    return Instance(
        id=request.instance_id,
        name="",
        project_id=request.context.project_id,
        user_id=request.context.user_id,
        state=InstanceState.DELETED,
        flavor=Flavor("none", 0, 0),
        image=None,
        request_spec={},
        created_at=now,
        updated_at=now,
        deleted_at=now,
    )
