"""Move an instance with its guest stopped, to another host or, resized, on its own.

A cold migration keeps the flavor, a resize changes it; the steps are the same. It ends
`resized`: the source keeps guest, disk and allocation until the move is confirmed or reverted. The
disk is copied and verified before the instance lives on the target; a revert returns to the
source's and loses what was written since.
"""

from __future__ import annotations

from dataclasses import replace

from conductor.operations.engine.definition import DispatchToHost, Operation, Outcome
from conductor.operations.steps import move_steps
from conductor.operations.steps.instance_steps import disk_in, must_get
from conductor.operations.steps.move_steps import Move
from conductor.store import UnitOfWork
from models.errors import HostRefused
from models.json_types import Json
from models.lifecycle import InstanceState, MigrationState, PowerState

DISK_TIMEOUT_S = 3_600.0

cold_move = Operation("cold_move", Move, template=True)
"""The steps. What is accepted is each variant's own."""


@cold_move.step
def hold_source(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """The migration holds the source from here on."""
    return move_steps.hold_source(move, uow)


@hold_source.undo
def hand_source_back(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """The instance holds its source as before."""
    return move_steps.hand_source_back(move, uow)


@cold_move.step
def claim_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Choose and claim a target that fits the new size."""
    return move_steps.select_target(move, uow)


@claim_target.reply
def target_claimed(move: Move, result: Json, _: UnitOfWork) -> Move:
    """Keep the alternates."""
    return move_steps.target_claimed(move, result)


@claim_target.undo
def release_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Give the target back."""
    return move_steps.release_target(move, uow)


@cold_move.step(retry_from=claim_target)
def define_on_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Create the guest on the target, not started; a target that refuses costs nothing yet."""
    if _stays(move, uow):
        return move
    return move_steps.create_on_target(move, uow, "shutdown", move_steps.disk_to_copy(move, uow))


@define_on_target.undo
def remove_from_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Remove what may have been created there."""
    if move_steps.of(move, uow).target is None or _stays(move, uow):
        return move
    return move_steps.dispatch_to_target(move, uow, "destroy", done_if_down=True)


@cold_move.step
def stop_on_source(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Stop the guest; it stays defined, for a revert."""
    return move_steps.dispatch_to_source(move, uow, "power_off")


@stop_on_source.undo
def start_on_source(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Have it run again, if it did."""
    if not move_steps.of(move, uow).was_running:
        return move
    return move_steps.dispatch_to_source(move, uow, "power_on", done_if_down=True)


@cold_move.step
def offer_disk(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Have the source say where the disk is and what proves it; it keeps it."""
    if _stays(move, uow) or move_steps.disk_to_copy(move, uow) is None:
        return move
    return move_steps.dispatch_to_source(move, uow, "offer_disk")


@offer_disk.reply
def disk_offered(move: Move, result: Json, uow: UnitOfWork) -> Move:
    """Keep what it reported."""
    return replace(move, disk=disk_in(result, move_steps.of(move, uow).source))


@cold_move.step(retry_from=claim_target)
def take_disk(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Have the target take the disk over, with all that is on it."""
    if move.disk is None:
        return move
    target = move_steps.of(move, uow).target or ""
    args = {"disk": move.disk}
    return DispatchToHost(
        move, target, move.instance_id, "take_disk", args, timeout_s=DISK_TIMEOUT_S
    )


@take_disk.reply
def verify_disk(move: Move, result: Json, uow: UnitOfWork) -> Move:
    """Believe only a disk that has the checksum of the source's."""
    target, source_disk = move_steps.of(move, uow).target or "", move.disk or {}
    if result.get("checksum") != source_disk.get("checksum"):
        message = f"the disk on {target} is not that of the source"
        raise HostRefused("disk_differs", message, host=target)
    return move


@cold_move.step
def reshape(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """On its own host, give the guest its new size and place."""
    if not _stays(move, uow):
        return move
    return move_steps.dispatch_to_target(move, uow, "reshape", "shutdown")


@reshape.undo
def reshape_back(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Give it its old size and place back."""
    if not _stays(move, uow):
        return move
    return move_steps.dispatch_to_source(move, uow, "reshape", "shutdown", done_if_down=True)


@cold_move.pivot
def switch(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """From here on the instance lives on the target, in its new size."""
    move_steps.switch(move, uow)
    return move


@cold_move.step
def start_on_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Have it run there, if it ran before."""
    if not move_steps.of(move, uow).was_running:
        return move
    return move_steps.dispatch_to_target(move, uow, "power_on")


@cold_move.step
def await_confirmation(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Hand it over; the source keeps its allocation until the move is confirmed or reverted."""
    migration = move_steps.of(move, uow)
    if migration.state is MigrationState.ERROR:
        # Taken up again after its source was given up: there is nothing to revert to.
        move_steps.leave_as_before(
            uow, move_steps.save(uow, migration, state=MigrationState.CONFIRMED)
        )
        return move
    move_steps.save(uow, migration, state=MigrationState.FINISHED)
    instance = must_get(uow, move.instance_id)
    power = PowerState.RUNNING if migration.was_running else PowerState.SHUTDOWN
    resized = replace(instance, state=InstanceState.RESIZED, power_state=power)
    uow.instances.save(replace(resized, task_state=None, fault=None, updated_at=uow.now))
    return move


cold_move.failed(move_steps.failed)
cold_move.given_up(move_steps.failed_after_switch)


def _stays(move: Move, uow: UnitOfWork) -> bool:
    migration = move_steps.of(move, uow)
    return migration.target == migration.source
