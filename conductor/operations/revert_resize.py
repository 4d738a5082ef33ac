"""Put a moved instance back where it was, as it was: its source has kept everything."""

from __future__ import annotations

from dataclasses import replace

from conductor.operations.engine.definition import NewOperation, Operation, Outcome
from conductor.operations.steps import move_steps
from conductor.operations.steps.instance_steps import must_get
from conductor.operations.steps.move_steps import Move
from conductor.operations.steps.unconfirmed_move import begin_decision, decided
from conductor.placement.local import instance_allocations
from conductor.store import UnitOfWork
from models.json_types import Json
from models.lifecycle import InstanceState, MigrationState, TaskState

revert_resize = Operation("revert_resize", Move)


@revert_resize.accept
def check(new: NewOperation, uow: UnitOfWork) -> Move:
    """Only a move that awaits confirmation can be reverted, and only to a source that lives."""
    move = begin_decision(new, uow, TaskState.REVERTING)
    move_steps.check_alive(new, uow, move_steps.of(move, uow).source)
    return move


@revert_resize.step
def stop_on_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Stop the guest where it is; a dead target has stopped it already."""
    return move_steps.dispatch_to_target(move, uow, "power_off", done_if_down=True)


@stop_on_target.undo
def start_on_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Have it run again, if it did."""
    if not move_steps.of(move, uow).was_running:
        return move
    return move_steps.dispatch_to_target(move, uow, "power_on", done_if_down=True)


@revert_resize.pivot
def remove_from_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Remove the guest there; on its own host it gets its old size and place back."""
    migration = move_steps.of(move, uow)
    if migration.source == migration.target:
        return move_steps.dispatch_to_source(move, uow, "reshape", "shutdown")
    return move_steps.dispatch_to_target(move, uow, "destroy", done_if_down=True)


@revert_resize.step
def switch_back(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """The instance lives on its source again; the target's allocation is released."""
    migration, instance = move_steps.of(move, uow), must_get(uow, move.instance_id)
    released = instance_allocations.release_target(uow, migration)
    instance_allocations.transfer_to_instance(uow, migration)
    ended = replace(released, target=migration.target, switched=False)
    move_steps.save(uow, ended, state=MigrationState.REVERTED)
    uow.instances.save(
        replace(
            instance,
            host=migration.source,
            placement=migration.source_placement,
            flavor=migration.source_flavor,
            availability_zone=move_steps.zone_of(migration.source, uow),
            updated_at=uow.now,
        )
    )
    return move


@revert_resize.step
def start_on_source(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Have it run there, if it ran before."""
    if not move_steps.of(move, uow).was_running:
        return move
    return move_steps.dispatch_to_source(move, uow, "power_on")


@revert_resize.step
def settle(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Hand it over as it was before the move."""
    move_steps.leave_as_before(uow, move_steps.of(move, uow))
    return move


@revert_resize.failed
def stay_resized(move: Move, fault: Json, uow: UnitOfWork) -> None:
    """It stays where it is, still awaiting a decision."""
    instance = must_get(uow, move.instance_id)
    stays = replace(instance, state=InstanceState.RESIZED, task_state=None, fault=fault)
    uow.instances.save(replace(stays, updated_at=uow.now))


revert_resize.met(decided(MigrationState.REVERTED))
