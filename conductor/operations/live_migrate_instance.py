"""Move a running instance to another host without stopping it."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from conductor.operations.engine.definition import DispatchToHost, NewOperation, Operation, Outcome
from conductor.operations.steps import move_steps
from conductor.operations.steps.instance_steps import disk_in
from conductor.operations.steps.move_steps import Move, Plan
from conductor.placement.resources import DISK_GB
from conductor.store import Instance, UnitOfWork
from models.errors import Rejected
from models.json_types import Json
from models.lifecycle import InstanceState, MigrationKind, MigrationState
from models.messages.requests import LiveMigrateInstance

COPY_TIMEOUT_S = 3 * 3_600.0

live_migrate_instance = Operation("live_migrate_instance", Move, deadline_s=4 * 3_600.0)


@live_migrate_instance.accept
def check(new: NewOperation, uow: UnitOfWork) -> Move:
    """It must run, without devices of its host, on a source that is up, for another known target.

    Whether its disk is copied is not a choice: what is on the source is, what is shared is there.
    """
    request = cast(LiveMigrateInstance, new.request)
    instance = move_steps.movable(new, uow, (InstanceState.ACTIVE,))
    _check_devices(instance)
    move_steps.check_source(new, uow, instance, alive=True)
    move_steps.check_target(instance, request.host, uow, same=False)
    if request.block_migration is not None:
        _check_disk(instance, uow, copied=request.block_migration)
    plan = Plan(MigrationKind.LIVE_MIGRATION, instance.flavor, request.host)
    move = move_steps.begin(new, uow, instance, plan)
    return replace(move, policy=request.policy.to_json())


@live_migrate_instance.step
def hold_source(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """The migration holds the source from here on."""
    return move_steps.hold_source(move, uow)


@hold_source.undo
def hand_source_back(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """The instance holds its source as before, its pins untouched."""
    return move_steps.hand_source_back(move, uow)


@live_migrate_instance.step
def claim_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Choose and claim a target on which the guest fits."""
    return move_steps.select_target(move, uow)


@claim_target.reply
def target_claimed(move: Move, result: Json, _: UnitOfWork) -> Move:
    """Keep the alternates."""
    return move_steps.target_claimed(move, result)


@claim_target.undo
def release_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Give the target back."""
    return move_steps.release_target(move, uow)


@live_migrate_instance.step
def check_on_source(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Ask the source whether the guest is there and runs."""
    return move_steps.dispatch_to_source(move, uow, "check_source")


@live_migrate_instance.step(retry_from=claim_target)
def check_on_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Ask the target whether such a guest can run there; nothing is made there yet."""
    return move_steps.dispatch_to_target(move, uow, "check_target", "nostate")


@live_migrate_instance.step(retry_from=claim_target)
def receive_on_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Create a guest on the target that waits for the memory of the running one."""
    return move_steps.create_on_target(move, uow, "nostate", move_steps.disk_to_copy(move, uow))


@receive_on_target.reply
def received(move: Move, result: Json, _: UnitOfWork) -> Move:
    """Keep what the source must know of the guest that waits."""
    return replace(move, destination=result.get("destination") or {})


@receive_on_target.undo
def remove_from_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Remove the waiting guest."""
    if move_steps.of(move, uow).target is None:
        return move
    return move_steps.dispatch_to_target(move, uow, "destroy", done_if_down=True)


@live_migrate_instance.step
def copy(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Copy memory while the guest runs; at its end the source has let go of it."""
    migration = move_steps.of(move, uow)
    return DispatchToHost(
        move,
        migration.source,
        move.instance_id,
        "copy",
        {"target": migration.target, "destination": move.destination, "policy": move.policy},
        timeout_s=COPY_TIMEOUT_S,
    )


@copy.reply
def copied(move: Move, result: Json, uow: UnitOfWork) -> Move:
    """Keep what proves the disk that has gone along."""
    if move_steps.disk_to_copy(move, uow) is None:
        return move
    return replace(move, disk=disk_in(result, move_steps.of(move, uow).source))


@copy.undo
def run_on_source(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Stop copying; the guest runs on the source as if nothing had been."""
    return move_steps.dispatch_to_source(move, uow, "abort_copy", done_if_down=True)


@live_migrate_instance.pivot
def switch(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """From here on the instance lives on the target."""
    move_steps.switch(move, uow)
    return move


@live_migrate_instance.step
def activate_on_target(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Let the guest run there."""
    target = move_steps.of(move, uow).target or ""
    args = {} if move.disk is None else {"disk": move.disk}
    return DispatchToHost(move, target, move.instance_id, "activate", args)


@live_migrate_instance.step
def remove_from_source(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Remove what is left on the source; a dead one does so when it comes back."""
    return move_steps.dispatch_to_source(move, uow, "destroy", done_if_down=True)


@live_migrate_instance.step
def settle(move: Move, uow: UnitOfWork) -> Outcome[Move]:
    """Release the source and hand the instance over."""
    move_steps.leave_as_before(uow, move_steps.give_up_source(move, uow, MigrationState.COMPLETED))
    return move


live_migrate_instance.failed(move_steps.failed)
live_migrate_instance.given_up(move_steps.failed_after_switch)


live_migrate_instance.met(move_steps.is_elsewhere)


def _check_devices(instance: Instance) -> None:
    """Refuse a guest with devices passed through: their state cannot be copied while it runs."""
    devices = instance.placement.devices if instance.placement is not None else ()
    if devices:
        count = sum(placed.count for placed in devices)
        message = (
            f"instance {instance.id} has {count} devices of its host passed through, which cannot "
            "move while it runs: migrate it cold"
        )
        raise Rejected("devices_not_movable", message, key="instance_id")


def _check_disk(instance: Instance, uow: UnitOfWork, *, copied: bool) -> None:
    """Refuse what would leave the disk behind, or write over the one that both ends share."""
    holders = {
        allocation.provider
        for allocation in uow.allocations.where(consumer_id=instance.id)
        if allocation.amounts.get(DISK_GB)
    }
    if instance.host in holders and not copied:
        message = f"block_migration is false: the disk is on {instance.host} alone"
        raise Rejected("disk_is_local", message, key="block_migration")
    if copied and holders and instance.host not in holders:
        message = f"block_migration is true: the disk is shared, on {', '.join(sorted(holders))}"
        raise Rejected("disk_is_shared", message, key="block_migration")
