"""What several operations need of an instance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, cast

from conductor.store.ports import UnitOfWork
from conductor.store.records import Allocation, Instance, Json
from models.errors import Broken
from models.messages.hardware import placement_to_json
from models.messages.letters import SpawnArgs


def must_get(uow: UnitOfWork, instance_id: str) -> Instance:
    """Return the instance; one without a record is a defect of ours, not of the caller."""
    instance = uow.instances.get(instance_id)
    if instance is None:
        raise Broken("instance_missing", f"instance {instance_id} has no record")
    return instance


def spawn_args(uow: UnitOfWork, instance: Instance) -> dict[str, Any]:
    """Return what its host must know to create the guest, running."""
    return spawn_args_of(instance, uow.allocations.get(instance.id, instance.host or ""))


def spawn_args_of(
    instance: Instance, held: Allocation | None, power: str = "running"
) -> dict[str, Any]:
    """Return what a host must know of a guest that holds `held` there."""
    placement = instance.placement
    return SpawnArgs(
        name=instance.name,
        vcpus=instance.flavor.vcpus,
        memory_mib=instance.flavor.memory_mib,
        disk_gb=held.amounts.get("DISK_GB", 0) if held else 0,
        image_id=instance.image.id if instance.image else None,
        placement=placement_to_json(placement) if placement else None,
        power=cast(Literal["running", "shutdown", "nostate"], power),
    ).to_json()


def leave_as_it_was(uow: UnitOfWork, instance_id: str, fault: Json) -> None:
    """Nothing is done to the instance any more; its state stays, with the fault beside it."""
    instance = must_get(uow, instance_id)
    uow.instances.save(replace(instance, task_state=None, fault=fault, updated_at=uow.now))
