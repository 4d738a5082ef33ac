"""Make an image of the disk of an instance, from which others can be built."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, cast

from conductor.operations.engine.definition import DispatchToHost, NewOperation, Operation, Outcome
from conductor.operations.steps.instance_steps import (
    disk_in,
    has_local_disk,
    leave_as_it_was,
    must_get,
)
from conductor.operations.steps.move_steps import check_alive
from conductor.operations.steps.power_steps import in_one_of
from conductor.store import CatalogueEntry, Instance, UnitOfWork
from models.errors import Rejected
from models.ids import OperationId, child_id
from models.json_types import Json
from models.lifecycle import InstanceState, TaskState
from models.messages.base import parse
from models.messages.catalogue import ImageBody
from models.messages.hardware.hardware_json import image_to_json
from models.messages.requests import SnapshotInstance

_STATES: Final = (
    InstanceState.ACTIVE,
    InstanceState.STOPPED,
    InstanceState.PAUSED,
    InstanceState.SUSPENDED,
)
_OF_CONTENT: Final = ("source", "format", "size_bytes", "virtual_size_bytes")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Of which instance, and the image it becomes; `disk` is what its host has saved."""

    instance_id: str
    image_id: str
    image_name: str
    disk: dict[str, Any] | None = None


snapshot_instance = Operation("snapshot_instance", Snapshot)


@snapshot_instance.accept
def check(new: NewOperation, uow: UnitOfWork) -> Snapshot:
    """It must have its root disk on a host that is up; what is on a volume is not saved here."""
    request = cast(SnapshotInstance, new.request)
    instance = in_one_of(request, uow, _STATES)
    if not has_local_disk(instance):
        message = f"instance_id is {instance.id}: its root disk is a volume, not its host's"
        raise Rejected("no_local_disk", message, key="instance_id")
    check_alive(new, uow, instance.host or "")
    name = request.image_name or f"{instance.name[:200]}-snapshot"
    uow.instances.save(replace(instance, task_state=TaskState.SNAPSHOTTING, updated_at=uow.now))
    return Snapshot(instance.id, child_id(OperationId(new.id), 0), name)


@snapshot_instance.step
def save_disk(snapshot: Snapshot, uow: UnitOfWork) -> Outcome[Snapshot]:
    """Have its host save the disk; of the same content it saves the same, so nothing is undone."""
    host = must_get(uow, snapshot.instance_id).host or ""
    return DispatchToHost(snapshot, host, snapshot.instance_id, "snapshot")


@save_disk.reply
def disk_saved(snapshot: Snapshot, result: Json, uow: UnitOfWork) -> Snapshot:
    """Keep what its host has said of the disk; one that says nothing has saved nothing."""
    host = must_get(uow, snapshot.instance_id).host or ""
    return replace(snapshot, disk=disk_in(result, host))


@snapshot_instance.step
def write_image(snapshot: Snapshot, uow: UnitOfWork) -> Outcome[Snapshot]:
    """Write the image, with the properties of the one that the instance was made from."""
    instance = must_get(uow, snapshot.instance_id)
    body = _body(snapshot, instance)
    uow.catalogue.put(CatalogueEntry("image", snapshot.image_id, body, uow.now))
    uow.instances.save(replace(instance, task_state=None, updated_at=uow.now))
    return snapshot


@snapshot_instance.failed
def stay(snapshot: Snapshot, fault: Json, uow: UnitOfWork) -> None:
    """It is as it was, with the fault."""
    leave_as_it_was(uow, snapshot.instance_id, fault)


@snapshot_instance.result
def saved(snapshot: Snapshot) -> Json:
    """Return the image."""
    return {"image_id": snapshot.image_id, "image_name": snapshot.image_name}


def _body(snapshot: Snapshot, instance: Instance) -> dict[str, Any]:
    """Return the image: its content where a host says where that is (a simulation does not)."""
    disk = snapshot.disk or {}
    ticket = disk.get("ticket") or {}
    content = {name: ticket[name] for name in _OF_CONTENT if "source" in ticket and name in ticket}
    if content:
        content["checksum"] = disk["checksum"]
    image = image_to_json(instance.image) if instance.image else {}
    fields = {
        "id": snapshot.image_id,
        "name": snapshot.image_name,
        "properties": image.get("properties", {}),
        "min_disk_gb": max(image.get("min_disk_gb", 0), instance.flavor.root_gb),
        "min_memory_mb": image.get("min_memory_mb", 0),
        **content,
    }
    return parse(ImageBody, fields).to_json()
