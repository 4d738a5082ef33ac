"""Put a moved instance back where it was, as it was: its source has kept everything."""

from __future__ import annotations

from dataclasses import replace

from conductor.operations import moves
from conductor.operations.awaited import awaited, decided
from conductor.operations.definition import NewOperation, Operation, Outcome
from conductor.operations.instances import must_get
from conductor.operations.moves import Move
from conductor.placement import claims
from conductor.store.ports import UnitOfWork
from conductor.store.records import Json
from models.lifecycle import InstanceState, MigrationState, TaskState

revert_resize = Operation("revert_resize", Move)


@revert_resize.accept
def check(new: NewOperation, uow: UnitOfWork) -> Move:
    """Only a move that awaits confirmation can be reverted, and only to a source that lives."""
    move = awaited(new, uow, TaskState.REVERTING)
    moves.check_alive(new, uow, moves.of(move, uow).source)
    return move


@revert_resize.step
def stop_on_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Stop the guest where it is; a dead target has stopped it already."""
    return moves.ask_target(move, uow, "power_off", done_if_down=True)


@stop_on_target.undo
def start_on_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Have it run again, if it did."""
    if not moves.of(move, uow).was_running:
        return move
    return moves.ask_target(move, uow, "power_on", done_if_down=True)


@revert_resize.pivot
def remove_from_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Remove the guest there; on its own host it gets its old size and place back."""
    migration = moves.of(move, uow)
    if migration.source == migration.target:
        return moves.ask_source(move, uow, "reshape", "shutdown")
    return moves.ask_target(move, uow, "destroy", done_if_down=True)


@revert_resize.step
def switch_back(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """The instance lives on its source again; the target's room is given back."""
    migration, instance = moves.of(move, uow), must_get(uow, move.instance_id)
    released = claims.release_target(uow, migration)
    claims.hand_to_instance(uow, migration)
    ended = replace(released, target=migration.target, switched=False)
    moves.save(uow, ended, state=MigrationState.REVERTED)
    uow.instances.save(
        replace(
            instance,
            host=migration.source,
            placement=migration.source_placement,
            flavor=migration.source_flavor,
            availability_zone=moves.zone_of(migration.source, uow),
            updated_at=uow.now,
        )
    )
    return move


@revert_resize.step
def start_on_source(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Have it run there, if it ran before."""
    if not moves.of(move, uow).was_running:
        return move
    return moves.ask_source(move, uow, "power_on")


@revert_resize.step
def settle(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Hand it over as it was before the move."""
    moves.settle(uow, moves.of(move, uow))
    return move


@revert_resize.failed
def stay_resized(move: Move, fault: Json, uow: UnitOfWork) -> None:
    """It stays where it is, still awaiting a decision."""
    instance = must_get(uow, move.instance_id)
    stays = replace(instance, state=InstanceState.RESIZED, task_state=None, fault=fault)
    uow.instances.save(replace(stays, updated_at=uow.now))


revert_resize.met(decided(MigrationState.REVERTED))
