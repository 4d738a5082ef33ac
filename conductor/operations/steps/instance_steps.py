"""What several operations need of an instance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, cast

from conductor.operations.steps.image_sources import image_file
from conductor.store import Allocation, Instance, UnitOfWork
from models.errors import Broken, HostRefused
from models.hardware import boots_from_volume
from models.json_types import Json
from models.lifecycle import InstanceState, PowerState
from models.messages.base import parse
from models.messages.guests.guest_definition import GuestDefinition
from models.messages.guests.requested_hardware import hardware_of
from models.messages.guests.root_disks import DiskImage, RootDisk
from models.messages.hardware.hardware_json import placement_to_json

GUEST_MISSING = "guest_missing"
LOST_GUEST = "lost_guest"
SHELVED_DISK = "shelved_disk"
"""Where the request spec of a shelved instance keeps the snapshot of its disk.

With the instance and not among the images: nobody can remove it while it is all there is.
"""


def must_get(uow: UnitOfWork, instance_id: str) -> Instance:
    """Return the instance; one without a record is a defect of ours, not of the caller."""
    instance = uow.instances.get(instance_id)
    if instance is None:
        raise Broken("instance_missing", f"instance {instance_id} has no record")
    return instance


def spawn_args(
    uow: UnitOfWork, instance: Instance, root_disk: RootDisk | None = None
) -> dict[str, Any]:
    """Return what its host must know to create the guest, running."""
    held = uow.allocations.get(instance.id, instance.host or "")
    return spawn_args_of(instance, held, root_disk=root_disk)


def spawn_args_of(
    instance: Instance,
    held: Allocation | None,
    power: str = "running",
    root_disk: RootDisk | None = None,
) -> dict[str, Any]:
    """Return what a host must know of a guest that holds `held` there.

    Its root disk is made from its image where nothing else is said.
    """
    placement = instance.placement
    return GuestDefinition(
        name=instance.name,
        vcpus=instance.flavor.vcpus,
        memory_mib=instance.flavor.memory_mib,
        disk_gb=held.amounts.get("DISK_GB", 0) if held else 0,
        image=image_file(instance.image) if instance.image and has_local_disk(instance) else None,
        placement=placement_to_json(placement) if placement else None,
        root_gib=instance.flavor.root_gb if has_local_disk(instance) else 0,
        ephemeral_gib=instance.flavor.ephemeral_gb,
        swap_mib=instance.flavor.swap_mib,
        hardware=hardware_of(instance.flavor, instance.image),
        project_id=instance.project_id,
        metadata=dict(instance.request_spec.get("metadata") or {}),
        root_disk=root_disk or RootDisk(),
        power=cast(Literal["running", "shutdown", "nostate"], power),
    ).to_json()


def shelved_disk(instance: Instance) -> RootDisk | None:
    """Return the root disk that shelving has saved; None where there is none."""
    saved = instance.request_spec.get(SHELVED_DISK)
    return RootDisk(origin="snapshot", disk=parse(DiskImage, saved)) if saved else None


def has_virtual_tpm(instance: Instance) -> bool:
    """Say whether the guest has a TPM that its host emulates."""
    return hardware_of(instance.flavor, instance.image).tpm is not None


def has_local_disk(instance: Instance) -> bool:
    """Say whether its root disk is on its host: a volume is elsewhere, whatever happens here."""
    return not boots_from_volume(instance.image)


def disk_in(result: Json, host: str) -> dict[str, Any]:
    """Return the disk that a host reported; `HostRefused` for a host that names none.

    What is not named cannot be fetched: before anything is destroyed, this is found out.
    """
    if not result.get("disk"):
        message = f"{host} has not said where the disk is: it cannot preserve it"
        raise HostRefused("disk_not_preserved", message, host=host)
    return parse(DiskImage, result["disk"]).to_json()


def leave_as_it_was(uow: UnitOfWork, instance_id: str, fault: Json) -> None:
    """Nothing is done to the instance any more; its state stays, with the fault beside it.

    Of a guest that is missing it stays known, too, that it is and what it was.
    """
    instance = must_get(uow, instance_id)
    lost = lost_guest(instance)
    if lost is not None:
        fault = {**fault, "data": {**(fault.get("data") or {}), LOST_GUEST: lost}}
    uow.instances.save(replace(instance, task_state=None, fault=fault, updated_at=uow.now))


def without_guest(instance: Instance) -> Instance:
    """Return an instance whose host has no guest of it: in ERROR, and what it was in the fault."""
    fault = {
        "code": GUEST_MISSING,
        "message": f"{instance.host} no longer has its guest",
        "data": {LOST_GUEST: instance.state.value},
    }
    lost = replace(instance, state=InstanceState.ERROR, fault=fault)
    return replace(lost, power_state=PowerState.NOSTATE)


def lost_guest(instance: Instance) -> str | None:
    """Return in which state an instance was when its guest was missed; None where it was not."""
    fault = instance.fault or {}
    if instance.state is not InstanceState.ERROR:
        return None
    state = (fault.get("data") or {}).get(LOST_GUEST)
    return str(state) if state else None


def ran(instance: Instance) -> bool:
    """Say whether the guest is to run once it is made anew: it did when last it was seen."""
    lost = lost_guest(instance)
    if lost is not None:
        return lost == InstanceState.ACTIVE.value
    return instance.power_state is PowerState.RUNNING
