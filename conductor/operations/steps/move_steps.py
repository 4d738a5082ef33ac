"""What all moves share: their migration record, allocations on both ends, and dispatches.

While a move runs, the migration holds the source's allocation and the instance the target's
(`Migration` says which side the instance lives on), so that at every step both ends are exact.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, cast

from conductor.liveness import host_is_up
from conductor.operations.engine.definition import DispatchToHost, DispatchToScheduler, NewOperation
from conductor.operations.engine.fences import remove_when_back
from conductor.operations.steps.instance_steps import (
    has_local_disk,
    has_virtual_tpm,
    leave_as_it_was,
    must_get,
    ran,
    spawn_args_of,
)
from conductor.placement.local import instance_allocations
from conductor.store import Instance, Migration, OperationRecord, UnitOfWork
from models.errors import Broken, Rejected
from models.hardware import Flavor
from models.json_types import Json
from models.lifecycle import (
    InstanceState,
    MigrationKind,
    MigrationState,
    PowerState,
    TaskState,
)
from models.messages.guests.root_disks import RootDisk
from models.messages.internal import HostRequest
from models.messages.requests import InstanceRequest, Request

_TASKS = {
    MigrationKind.MIGRATION: TaskState.MIGRATING,
    MigrationKind.RESIZE: TaskState.RESIZING,
    MigrationKind.LIVE_MIGRATION: TaskState.MIGRATING,
    MigrationKind.EVACUATION: TaskState.EVACUATING,
}
_LOST = (InstanceState.ERROR, InstanceState.DELETED)


@dataclass(frozen=True, slots=True)
class Move:
    """Where one move stands; its migration knows both ends. `tried` are targets that failed.

    `disk` is what the source reported of its disk, for the target to copy and verify; `destination`
    what the target said of the guest that waits there, `policy` the limits of a live copy.
    """

    instance_id: str
    migration_id: str
    alternates: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    force: bool = False
    disk: dict[str, Any] | None = None
    destination: dict[str, Any] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a move is to do, before anything is allocated; `force` skips all rules but capacity."""

    kind: MigrationKind
    flavor: Flavor
    host: str | None = None
    same_host: bool = False
    force: bool = False


def movable(new: NewOperation, uow: UnitOfWork, states: Iterable[InstanceState]) -> Instance:
    """Return the instance that is to move; raise `Rejected` when it is in none of the states."""
    request = cast(InstanceRequest, new.request)
    instance = uow.instances.get(request.instance_id)
    if instance is None or instance.state is InstanceState.DELETED:
        message = f"instance_id is {request.instance_id}: no such instance"
        raise Rejected("instance_unknown", message, key="instance_id")
    allowed = tuple(states)
    if instance.state not in allowed or instance.host is None:
        needed = " or ".join(allowed)
        message = f"instance {instance.id} is {instance.state}: it must be {needed}"
        raise Rejected("instance_state", message, key="instance_id")
    return instance


def check_source(new: NewOperation, uow: UnitOfWork, instance: Instance, *, alive: bool) -> None:
    """Refuse a move whose source must be alive and is not, or the other way round."""
    up = host_is_up(uow, instance.host or "", new.down_after_s)
    if alive and not up:
        message = f"{instance.host} is down: evacuate the instance instead"
        raise Rejected("host_down", message, key="instance_id")
    if up and not alive:
        message = f"{instance.host} is up: migrate the instance, or force the host down first"
        raise Rejected("host_up", message, key="instance_id")


def refuse_lost_tpm(instance: Instance, way_out: str) -> None:
    """Refuse (`tpm_state_lost`) what takes a guest with a virtual TPM off its host while stopped.

    Its state is on that host alone: what it has sealed could never be opened again.
    """
    if has_virtual_tpm(instance):
        message = (
            f"instance {instance.id} has a virtual TPM, whose state is on its host alone and would "
            f"be lost: {way_out}"
        )
        raise Rejected("tpm_state_lost", message, key="instance_id")


def check_alive(new: NewOperation, uow: UnitOfWork, host: str) -> None:
    """Refuse work that needs a host which is down."""
    if not host_is_up(uow, host, new.down_after_s):
        raise Rejected("host_down", f"{host} is down", key="instance_id")


def check_target(instance: Instance, host: str | None, uow: UnitOfWork, *, same: bool) -> None:
    """Refuse a named target that is unknown, or where the instance is already."""
    if host is None:
        return
    if uow.hosts.get(host) is None:
        raise Rejected("host_unknown", f"host is {host}: no such host", key="host")
    if host == instance.host and not same:
        message = f"host is {host}: the instance is there already"
        raise Rejected("host_is_source", message, key="host")


def begin(new: NewOperation, uow: UnitOfWork, instance: Instance, plan: Plan) -> Move:
    """Write the migration and the task state; nothing is allocated or moved yet."""
    migration = Migration(
        id=str(uuid.uuid5(uuid.UUID(new.id), "migration")),
        instance_id=instance.id,
        kind=plan.kind,
        state=MigrationState.ACCEPTED,
        operation_id=new.id,
        source=instance.host or "",
        source_flavor=instance.flavor,
        target_flavor=plan.flavor,
        source_placement=instance.placement,
        requested_host=plan.host,
        same_host=plan.same_host,
        was_running=ran(instance),
        created_at=uow.now,
        updated_at=uow.now,
    )
    uow.migrations.add(migration)
    uow.instances.save(replace(instance, task_state=_TASKS[plan.kind], updated_at=uow.now))
    return Move(instance.id, migration.id, force=plan.force)


def of(move: Move, uow: UnitOfWork) -> Migration:
    """Return the migration of a move."""
    migration = uow.migrations.get(move.migration_id)
    if migration is None:
        raise Broken("migration_missing", f"migration {move.migration_id} has no record")
    return migration


def save(uow: UnitOfWork, migration: Migration, **changes: Any) -> Migration:
    """Write a migration with changes and return it."""
    changed = replace(migration, **changes, updated_at=uow.now)
    uow.migrations.save(changed)
    return changed


def hold_source(move: Move, uow: UnitOfWork) -> Move:
    """Let the migration hold what the instance has held on its source.

    An operation that was superseded may have moved it away meanwhile: then this one is over.
    """
    migration, instance = of(move, uow), must_get(uow, move.instance_id)
    if instance.host != migration.source:
        message = f"the instance has left {migration.source} for {instance.host}"
        raise Rejected("instance_moved", message, key="instance_id")
    uow.instances.save(replace(instance, task_state=_TASKS[migration.kind]))
    instance_allocations.transfer_to_migration(uow, migration)
    save(uow, migration, state=MigrationState.MIGRATING)
    return move


def hand_source_back(move: Move, uow: UnitOfWork) -> Move:
    """Let the instance hold its source again; the record says so, whatever allocations say."""
    migration = of(move, uow)
    instance_allocations.transfer_to_instance(uow, migration)
    if migration.unfinished:
        save(uow, migration, state=MigrationState.ACCEPTED)
    return move


def select_target(move: Move, uow: UnitOfWork) -> DispatchToScheduler[Move]:
    """Have the scheduler select a target, the alternates of an earlier selection first."""
    migration = of(move, uow)
    host_request = HostRequest(
        instance_id=move.instance_id,
        operation_id=migration.operation_id,
        migration_id=migration.id,
        force=move.force,
    )
    elsewhere = () if migration.same_host else (migration.source,)
    return DispatchToScheduler(
        move, (host_request,), alternates=move.alternates, ignored=(*elsewhere, *move.tried)
    )


def target_claimed(move: Move, result: Json) -> Move:
    """Keep the hosts that remain; the claim is already in the migration."""
    return replace(move, alternates=tuple(result["selected"][0]["alternates"]))


def release_target(move: Move, uow: UnitOfWork) -> Move:
    """Release the claim on the target and do not go there again."""
    migration = of(move, uow)
    if migration.target is None:
        return move
    target = migration.target
    save(uow, instance_allocations.release_target(uow, migration))
    return replace(move, tried=(*move.tried, target))


def dispatch_to_target(
    move: Move, uow: UnitOfWork, verb: str, power: str | None = None, **options: Any
) -> DispatchToHost[Move]:
    """Dispatch to the target; `power` adds a guest of the new size on the claimed place."""
    migration = of(move, uow)
    args = _target_guest(move, uow, power) if power else {}
    return DispatchToHost(move, migration.target or "", move.instance_id, verb, args, **options)


def create_on_target(
    move: Move, uow: UnitOfWork, power: str, root_disk: RootDisk | None
) -> DispatchToHost[Move]:
    """Dispatch the creation of the guest to the target; `root_disk` says where its disk is from."""
    target = of(move, uow).target or ""
    args = _target_guest(move, uow, power, root_disk)
    return DispatchToHost(move, target, move.instance_id, "spawn", args)


def disk_to_copy(move: Move, uow: UnitOfWork) -> RootDisk | None:
    """Return the root disk of a guest whose own is to be copied from the source, if it is there."""
    local = has_local_disk(must_get(uow, move.instance_id))
    return RootDisk(origin="copy") if local else None


def dispatch_to_source(
    move: Move, uow: UnitOfWork, verb: str, power: str | None = None, **options: Any
) -> DispatchToHost[Move]:
    """Dispatch to the source; `power` adds a guest of the old size on its old place."""
    migration = of(move, uow)
    args = _source_guest(move, uow, power) if power else {}
    return DispatchToHost(move, migration.source, move.instance_id, verb, args, **options)


def switch(move: Move, uow: UnitOfWork) -> Migration:
    """Let the instance live on the target, in its new size."""
    migration, instance = of(move, uow), must_get(uow, move.instance_id)
    uow.instances.save(
        replace(
            instance,
            host=migration.target,
            placement=migration.target_placement,
            flavor=migration.target_flavor,
            availability_zone=zone_of(migration.target, uow),
            updated_at=uow.now,
        )
    )
    return save(uow, migration, switched=True)


def zone_of(host: str | None, uow: UnitOfWork) -> str | None:
    """Return the availability zone of a host, the first by name where it is in several."""
    zones = uow.catalogue.where(kind="zone")
    return min((zone.name for zone in zones if host in zone.body.get("hosts", ())), default=None)


def give_up_source(move: Move, uow: UnitOfWork, state: MigrationState) -> Migration:
    """End a move for good: nothing of it is held on the source any more."""
    migration = of(move, uow)
    instance_allocations.release_source(uow, migration)
    return save(uow, migration, state=state)


def leave_as_before(uow: UnitOfWork, migration: Migration) -> None:
    """Leave the instance as running, stopped or shelved as it was before the move."""
    instance = must_get(uow, migration.instance_id)
    running, shelved = migration.was_running, instance.state is InstanceState.SHELVED
    off = InstanceState.SHELVED if shelved else InstanceState.STOPPED
    uow.instances.save(
        replace(
            instance,
            state=InstanceState.ACTIVE if running else off,
            power_state=PowerState.RUNNING if running else PowerState.SHUTDOWN,
            task_state=None,
            fault=None,
            updated_at=uow.now,
        )
    )


def failed(move: Move, fault: Json, uow: UnitOfWork) -> None:
    """Everything was undone: the instance is where and what it was, with the fault beside it.

    The target holds nothing any more; which one it was stays known.
    """
    migration = of(move, uow)
    target = move.tried[-1] if move.tried else migration.requested_host
    save(uow, migration, state=MigrationState.ERROR, error=fault, target=target)
    leave_as_it_was(uow, move.instance_id, fault)


def failed_after_switch(move: Move, fault: Json, uow: UnitOfWork) -> None:
    """There was no way back: ERROR on the new host, in the new size, nothing on the old."""
    given_up = give_up_source(move, uow, MigrationState.ERROR)
    save(uow, given_up, error=fault)
    if given_up.source != given_up.target:
        remove_when_back(uow, move.instance_id, given_up.source, given_up.operation_id)
    instance = must_get(uow, move.instance_id)
    broken = replace(instance, state=InstanceState.ERROR, task_state=None, fault=fault)
    uow.instances.save(replace(broken, updated_at=uow.now))


def is_elsewhere(_: Request, old: OperationRecord, uow: UnitOfWork) -> str | None:
    """Say that the instance has left the source of the old move already, if it has."""
    instance = uow.instances.get(old.instance_id or "")
    moves = uow.migrations.where(instance_id=old.instance_id, operation_id=old.id)
    if instance is None or not moves or instance.state in _LOST:
        return None
    source, host, wanted = moves[-1].source, instance.host, moves[-1].requested_host
    if host in (None, source) or wanted not in (None, host):
        return None
    return f"it is on {host} already, not on {source}"


def is_resized(_: Request, old: OperationRecord, uow: UnitOfWork) -> str | None:
    """Say that the instance has the flavor of the old resize already, where it was to be."""
    instance = uow.instances.get(old.instance_id or "")
    moves = uow.migrations.where(instance_id=old.instance_id, operation_id=old.id)
    if instance is None or not moves or instance.state in _LOST:
        return None
    flavor, wanted = moves[-1].target_flavor, moves[-1].requested_host
    if instance.flavor != flavor or wanted not in (None, instance.host):
        return None
    return f"it has flavor {flavor.name} already"


def running_or_not(migration: Migration) -> str:
    """Return the power that the guest had when the move began."""
    return "running" if migration.was_running else "shutdown"


def _target_guest(
    move: Move, uow: UnitOfWork, power: str, root_disk: RootDisk | None = None
) -> dict[str, Any]:
    migration, instance = of(move, uow), must_get(uow, move.instance_id)
    held = uow.allocations.get(instance.id, migration.target or "")
    guest = replace(instance, flavor=migration.target_flavor, placement=migration.target_placement)
    return spawn_args_of(guest, held, power, root_disk)


def _source_guest(move: Move, uow: UnitOfWork, power: str) -> dict[str, Any]:
    migration, instance = of(move, uow), must_get(uow, move.instance_id)
    held = uow.allocations.get(migration.id, migration.source)
    guest = replace(instance, flavor=migration.source_flavor, placement=migration.source_placement)
    return spawn_args_of(guest, held, power)
