"""Make an instance anew on another host because its own is dead.

Whatever was being done to it goes no further: a task on a dead host would wait for ever.
That is also recorded as a removal, so that the dead host drops what left it when it comes back.
Without shared storage the disk cannot be had from a dead host: the guest starts from its image, or
from the snapshot of a shelved one.
"""

from __future__ import annotations

from typing import cast

from conductor.operations.engine.definition import NewOperation, Operation, Outcome
from conductor.operations.engine.fences import remove_when_back
from conductor.operations.steps import move_steps
from conductor.operations.steps.instance_steps import (
    has_local_disk,
    has_virtual_tpm,
    must_get,
    shelved_disk,
)
from conductor.operations.steps.move_steps import Move, Plan
from conductor.placement.resources import DISK_GB
from conductor.store import Event, UnitOfWork
from models.errors import Rejected
from models.json_types import Json
from models.lifecycle import InstanceState, MigrationKind, MigrationState
from models.messages.guests.root_disks import RootDisk
from models.messages.requests import EvacuateInstance

evacuate_instance = Operation("evacuate_instance", Move, when_busy="supersede")

_STATES = (
    InstanceState.ACTIVE,
    InstanceState.STOPPED,
    InstanceState.PAUSED,
    InstanceState.SUSPENDED,
    InstanceState.ERROR,
    InstanceState.SHELVED,
)


@evacuate_instance.accept
def check(new: NewOperation, uow: UnitOfWork) -> Move:
    """Its host must be down; a named target known and another one; force needs a target."""
    request = cast(EvacuateInstance, new.request)
    instance = move_steps.movable(new, uow, _STATES)
    move_steps.check_source(new, uow, instance, alive=False)
    move_steps.check_target(instance, request.host, uow, same=False)
    if request.force and request.host is None:
        raise Rejected("host_missing", "host is missing: force needs one to go to", key="host")
    plan = Plan(MigrationKind.EVACUATION, instance.flavor, request.host, force=request.force)
    return move_steps.begin(new, uow, instance, plan)


@evacuate_instance.step
def hold_source(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """The migration holds the dead source from here on."""
    return move_steps.hold_source(move, uow)


@hold_source.undo
def hand_source_back(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """The instance is still where it was."""
    return move_steps.hand_source_back(move, uow)


@evacuate_instance.step
def claim_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Choose and claim a target."""
    return move_steps.select_target(move, uow)


@claim_target.reply
def target_claimed(move: Move, result: Json, _: UnitOfWork) -> Move:
    """Keep the alternates."""
    return move_steps.target_claimed(move, result)


@claim_target.undo
def release_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Give the target back."""
    return move_steps.release_target(move, uow)


@evacuate_instance.step(retry_from=claim_target)
def rebuild_on_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Create the guest there, running if it was to run.

    Its disk is the one on shared storage, or that which shelving saved; else it is new from the
    image, and the history says that what was on the old one is lost. So is a virtual TPM.
    """
    migration, root_disk = move_steps.of(move, uow), _root_disk(move, uow)
    instance = must_get(uow, move.instance_id)
    if root_disk is not None and root_disk.origin == "image":
        message = f"made anew from its image: what was on its disk stays on {migration.source}"
        event = Event(migration.operation_id, uow.now, "disk-lost", message, move.instance_id)
        uow.events.add(event)
    if has_virtual_tpm(instance):
        message = f"its virtual TPM is new: what the old one has sealed stays on {migration.source}"
        uow.events.add(
            Event(migration.operation_id, uow.now, "tpm-lost", message, move.instance_id)
        )
    return move_steps.create_on_target(move, uow, move_steps.running_or_not(migration), root_disk)


@rebuild_on_target.undo
def remove_from_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Remove what may have been created there."""
    if move_steps.of(move, uow).target is None:
        return move
    return move_steps.dispatch_to_target(move, uow, "destroy", done_if_down=True)


@evacuate_instance.pivot
def switch(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """The instance lives on the target; the dead host holds nothing of it any more."""
    switched = move_steps.switch(move, uow)
    remove_when_back(uow, move.instance_id, switched.source, switched.operation_id)
    move_steps.leave_as_before(uow, move_steps.give_up_source(move, uow, MigrationState.COMPLETED))
    return move


@evacuate_instance.failed
def stay(move: Move, fault: Json, uow: UnitOfWork) -> None:
    """Still on its dead host, with the fault beside it."""
    move_steps.failed(move, fault, uow)


evacuate_instance.met(move_steps.is_elsewhere)


def _root_disk(move: Move, uow: UnitOfWork) -> RootDisk | None:
    instance, migration = must_get(uow, move.instance_id), move_steps.of(move, uow)
    if not has_local_disk(instance):
        return None
    holders = {
        allocation.provider
        for consumer in (instance.id, migration.id)
        for allocation in uow.allocations.where(consumer_id=consumer)
        if allocation.amounts.get(DISK_GB)
    }
    if holders - {migration.source, migration.target}:
        return RootDisk(origin="shared")
    return shelved_disk(instance) or RootDisk(origin="image")
