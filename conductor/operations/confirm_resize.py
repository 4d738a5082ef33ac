"""Keep a moved instance: its source removes the guest and releases its allocation."""

from __future__ import annotations

from conductor.operations.engine.definition import NewOperation, Operation, Outcome
from conductor.operations.steps import move_steps
from conductor.operations.steps.instance_steps import leave_as_it_was
from conductor.operations.steps.move_steps import Move
from conductor.operations.steps.unconfirmed_move import begin_decision, decided
from conductor.store import UnitOfWork
from models.json_types import Json
from models.lifecycle import MigrationState, TaskState

confirm_resize = Operation("confirm_resize", Move)


@confirm_resize.accept
def check(new: NewOperation, uow: UnitOfWork) -> Move:
    """Only a move that awaits it can be confirmed, and only with a target that lives.

    Of a dead one nobody can say whether it has the disk: revert the move instead.
    """
    move = begin_decision(new, uow, TaskState.CONFIRMING)
    move_steps.check_alive(new, uow, move_steps.of(move, uow).target or "")
    return move


@confirm_resize.step
def check_on_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Have the target say that the guest is there with its disk, before the other one goes."""
    migration = move_steps.of(move, uow)
    if migration.source == migration.target:
        return move
    return move_steps.dispatch_to_target(move, uow, "check_disk")


@confirm_resize.pivot
def remove_from_source(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Remove the guest that was kept for a revert; a dead source does so when it comes back."""
    migration = move_steps.of(move, uow)
    if migration.source == migration.target:
        return move
    return move_steps.dispatch_to_source(move, uow, "destroy", done_if_down=True)


@confirm_resize.failed
def still_awaits(move: Move, fault: Json, uow: UnitOfWork) -> None:
    """The source would not let go: the move still awaits confirmation, with the fault."""
    leave_as_it_was(uow, move.instance_id, fault)


@confirm_resize.step
def release_source(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Release the allocation on the source; only the target's is left."""
    move_steps.leave_as_before(uow, move_steps.give_up_source(move, uow, MigrationState.CONFIRMED))
    return move


confirm_resize.met(decided(MigrationState.CONFIRMED))
