"""Make an instance anew where it is, from the same image or another.

An image that changes the guest's NUMA demand would need another claim, and is refused: the
place stays, so a rebuild works on a full host too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

from conductor.operations.engine.definition import DispatchToHost, NewOperation, Operation, Outcome
from conductor.operations.steps.build_request import NO_IMAGE, image_fits, image_of, image_value
from conductor.operations.steps.instance_steps import (
    has_local_disk,
    leave_as_it_was,
    must_get,
    ran,
    spawn_args,
)
from conductor.operations.steps.move_steps import check_alive, movable
from conductor.operations.steps.unsupported_fields import refuse_image_keys
from conductor.placement.image_changes import refuse_other_claim, refuse_unsuited_host
from conductor.store import Instance, OperationRecord, UnitOfWork
from models.errors import Rejected
from models.json_types import Json
from models.lifecycle import InstanceState, PowerState, TaskState
from models.messages.hardware.hardware_json import image_from_row, image_to_json
from models.messages.requests import RebuildInstance, Request

_STATES = (InstanceState.ACTIVE, InstanceState.STOPPED, InstanceState.ERROR)


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Which image it had and which it gets, as they are stored; whether it ran.

    `undone` says that the host may have begun, so that what was on the disk may be gone.
    """

    instance_id: str
    old_image: dict[str, Any] | None
    new_image: dict[str, Any]
    was_running: bool
    undone: bool = False


rebuild_instance = Operation("rebuild_instance", Rebuild)


@rebuild_instance.accept
def check(new: NewOperation, uow: UnitOfWork) -> Rebuild:
    """The host must suit the new image as for a build, with the same NUMA topology and devices."""
    request = cast(RebuildInstance, new.request)
    instance = movable(new, uow, _STATES)
    check_alive(new, uow, instance.host or "")
    _refuse_volume(instance)
    image = image_value(image_of(request.image, uow, "image"))
    image_fits(image, instance.flavor, "image")
    refuse_image_keys(image)
    refuse_other_claim(instance.flavor, instance.image or NO_IMAGE, image)
    refuse_unsuited_host(uow, instance.host or "", instance.flavor, image)
    uow.instances.save(replace(instance, task_state=TaskState.REBUILDING, updated_at=uow.now))
    return Rebuild(
        instance.id,
        image_to_json(instance.image) if instance.image else None,
        image_to_json(image),
        ran(instance),
    )


@rebuild_instance.step
def take_new_image(rebuild: Rebuild, uow: UnitOfWork) -> Outcome[Rebuild]:
    """The instance refers to the new image."""
    _set_image(rebuild, rebuild.new_image, uow)
    return rebuild


@take_new_image.undo
def take_old_image(rebuild: Rebuild, uow: UnitOfWork) -> Outcome[Rebuild]:
    """It refers to the old one again."""
    _set_image(rebuild, rebuild.old_image, uow)
    return rebuild


@rebuild_instance.step
def make_anew(rebuild: Rebuild, uow: UnitOfWork) -> Outcome[Rebuild]:
    """Have the host make the guest from the new image."""
    return _dispatch_rebuild(rebuild, uow)


@make_anew.undo
def make_as_before(rebuild: Rebuild, uow: UnitOfWork) -> Outcome[Rebuild]:
    """Have the host make the guest from the old image, unless it still is of that image.

    Asked only where it may have begun: a host that refuses has left the disk untouched.
    """
    _set_image(rebuild, rebuild.old_image, uow)
    return _dispatch_rebuild(replace(rebuild, undone=True), uow, unless_made=True)


@rebuild_instance.step
def hand_over(rebuild: Rebuild, uow: UnitOfWork) -> Outcome[Rebuild]:
    """Say that it is as it was, from the new image."""
    instance = must_get(uow, rebuild.instance_id)
    on = rebuild.was_running
    uow.instances.save(
        replace(
            instance,
            state=InstanceState.ACTIVE if on else InstanceState.STOPPED,
            power_state=PowerState.RUNNING if on else PowerState.SHUTDOWN,
            task_state=None,
            fault=None,
            updated_at=uow.now,
        )
    )
    return rebuild


@rebuild_instance.failed
def keep_old_image(rebuild: Rebuild, fault: Json, uow: UnitOfWork) -> None:
    """In the state it had, with the old image and the fault."""
    if rebuild.undone:
        lost = "its disk may have been made anew: what was on it may be lost"
        fault = {**fault, "message": f"{fault.get('message', '')}; {lost}"}
    leave_as_it_was(uow, rebuild.instance_id, fault)


@rebuild_instance.met
def is_met(_: Request, old: OperationRecord, uow: UnitOfWork) -> str | None:
    """Say that it has the other image already; from the same one it can be made anew again."""
    instance = uow.instances.get(old.instance_id or "")
    if instance is None or instance.state is InstanceState.ERROR or not old.data:
        return None
    rebuild = rebuild_instance.load(old.data)
    new_image = image_from_row(rebuild.new_image)
    met = rebuild.old_image != rebuild.new_image and instance.image == new_image
    return f"it has image {new_image.id} already" if met else None


def _dispatch_rebuild(
    rebuild: Rebuild, uow: UnitOfWork, *, unless_made: bool = False
) -> DispatchToHost[Rebuild]:
    instance = must_get(uow, rebuild.instance_id)
    power = "running" if rebuild.was_running else "shutdown"
    args = {**spawn_args(uow, instance), "power": power, "unless_made": unless_made}
    return DispatchToHost(rebuild, instance.host or "", instance.id, "rebuild", args)


def _set_image(rebuild: Rebuild, image: dict[str, Any] | None, uow: UnitOfWork) -> None:
    instance = must_get(uow, rebuild.instance_id)
    value = image_from_row(image) if image is not None else None
    uow.instances.save(replace(instance, image=value, updated_at=uow.now))


def _refuse_volume(instance: Instance) -> None:
    """Refuse to write over a volume: it is not ours, and no host can be asked to."""
    if not has_local_disk(instance):
        message = f"instance {instance.id} boots from a volume: no image is written over it"
        raise Rejected("volume_backed", message, key="instance_id")
