"""Make an instance anew on another host because its own is dead.

Whatever was being done to it goes no further: a task on a dead host would wait for ever (N08).
That is also recorded as a removal, so that the dead host drops what left it when it comes back.
"""

from __future__ import annotations

from typing import cast

from conductor.operations import moves
from conductor.operations.definition import NewOperation, Operation, Outcome
from conductor.operations.fences import remove_when_back
from conductor.operations.moves import Move, Plan
from conductor.store.ports import UnitOfWork
from conductor.store.records import Json
from models.errors import Rejected
from models.lifecycle import InstanceState, MigrationKind, MigrationState
from models.messages.requests import EvacuateInstance

evacuate_instance = Operation("evacuate_instance", Move, when_busy="supersede")

_STATES = (InstanceState.ACTIVE, InstanceState.STOPPED, InstanceState.ERROR)


@evacuate_instance.accept
def check(new: NewOperation, uow: UnitOfWork) -> Move:
    """Its host must be down; a named target known and another one; force needs a target."""
    request = cast(EvacuateInstance, new.request)
    instance = moves.movable(new, uow, _STATES)
    moves.check_source(new, uow, instance, alive=False)
    moves.check_target(instance, request.host, uow, same=False)
    if request.force and request.host is None:
        raise Rejected("host_missing", "host is missing: force needs one to go to", key="host")
    plan = Plan(MigrationKind.EVACUATION, instance.flavor, request.host, force=request.force)
    return moves.begin(new, uow, instance, plan)


@evacuate_instance.step
def hold_source(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """The migration holds the dead source from here on."""
    return moves.hold_source(move, uow)


@hold_source.undo
def hand_source_back(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """The instance is still where it was."""
    return moves.hand_source_back(move, uow)


@evacuate_instance.step
def claim_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Choose and claim a target."""
    return moves.ask_for_target(move, uow)


@claim_target.reply
def target_claimed(move: Move, result: Json, _: UnitOfWork) -> Move:
    """Keep the alternates."""
    return moves.target_claimed(move, result)


@claim_target.undo
def release_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Give the target back."""
    return moves.release_target(move, uow)


@evacuate_instance.step(retry_from=claim_target)
def rebuild_on_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Create the guest there, running if it was to run."""
    return moves.ask_target(move, uow, "spawn", moves.running_or_not(moves.of(move, uow)))


@rebuild_on_target.undo
def remove_from_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Remove what may have been created there."""
    if moves.of(move, uow).target is None:
        return move
    return moves.ask_target(move, uow, "destroy", done_if_down=True)


@evacuate_instance.pivot
def switch(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """The instance lives on the target; the dead host holds nothing of it any more."""
    switched = moves.switch(move, uow)
    remove_when_back(uow, move.instance_id, switched.source, switched.operation_id)
    moves.settle(uow, moves.give_up_source(move, uow, MigrationState.COMPLETED))
    return move


@evacuate_instance.failed
def stay(move: Move, fault: Json, uow: UnitOfWork) -> None:
    """Still on its dead host, with the fault beside it."""
    moves.failed(move, fault, uow)


evacuate_instance.met(moves.is_elsewhere)
