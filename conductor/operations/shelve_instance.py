"""Stop an instance for long; offloaded, it gives up its host too and keeps only its image."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

from conductor.operations.engine.definition import DispatchToHost, NewOperation, Operation, Outcome
from conductor.operations.steps.instance_steps import (
    SHELVED_DISK,
    disk_in,
    has_local_disk,
    leave_as_it_was,
    must_get,
)
from conductor.operations.steps.move_steps import check_alive, movable, refuse_lost_tpm
from conductor.placement.local.instance_allocations import release_instance
from conductor.store import Instance, OperationRecord, UnitOfWork
from models.json_types import Json
from models.lifecycle import InstanceState, PowerState, TaskState
from models.messages.requests import Request, ShelveInstance

_STATES = (InstanceState.ACTIVE, InstanceState.STOPPED, InstanceState.SHELVED)


@dataclass(frozen=True, slots=True)
class Shelve:
    """What is shelved, from which state, and whether it leaves its host.

    `disk` is the snapshot of its disk, without which it does not leave.
    """

    instance_id: str
    before: InstanceState
    offload: bool
    disk: dict[str, Any] | None = None


shelve_instance = Operation("shelve_instance", Shelve)


@shelve_instance.accept
def check(new: NewOperation, uow: UnitOfWork) -> Shelve:
    """It must have a host that is up; what is shelved already can still be offloaded.

    That goes with a dead host too: its disk has been saved. A virtual TPM stays on its host.
    """
    request = cast(ShelveInstance, new.request)
    states = _STATES if request.offload else _STATES[:2]
    instance = movable(new, uow, states)
    if request.offload:
        refuse_lost_tpm(instance, "shelve it without offload")
    saved = instance.request_spec.get(SHELVED_DISK)
    disk = saved if instance.state is InstanceState.SHELVED else None
    if not _is_saved(instance, disk):
        check_alive(new, uow, instance.host or "")
    uow.instances.save(replace(instance, task_state=TaskState.SHELVING, updated_at=uow.now))
    return Shelve(instance.id, instance.state, request.offload, disk)


@shelve_instance.step
def stop(shelve: Shelve, uow: UnitOfWork) -> Outcome[Shelve]:
    """Stop the guest."""
    if _is_saved(must_get(uow, shelve.instance_id), shelve.disk):
        return shelve
    return _dispatch(shelve, uow, "power_off")


@stop.undo
def start(shelve: Shelve, uow: UnitOfWork) -> Outcome[Shelve]:
    """Have it run again, if it did."""
    if shelve.before is not InstanceState.ACTIVE:
        return shelve
    return _dispatch(shelve, uow, "power_on", done_if_down=True)


@shelve_instance.step
def snapshot(shelve: Shelve, uow: UnitOfWork) -> Outcome[Shelve]:
    """Save its disk as an image, from which it comes back; a volume stays where it is."""
    instance = must_get(uow, shelve.instance_id)
    if not has_local_disk(instance) or shelve.disk is not None:
        return shelve
    return _dispatch(shelve, uow, "snapshot")


@snapshot.reply
def disk_saved(shelve: Shelve, result: Json, uow: UnitOfWork) -> Shelve:
    """Keep what its host has said of the image; one that says nothing has saved nothing."""
    host = must_get(uow, shelve.instance_id).host or ""
    return replace(shelve, disk=disk_in(result, host))


@shelve_instance.pivot
def mark_shelved(shelve: Shelve, uow: UnitOfWork) -> Outcome[Shelve]:
    """From here on it is shelved, whatever becomes of its host."""
    instance = must_get(uow, shelve.instance_id)
    spec = dict(instance.request_spec)
    if shelve.disk is not None:
        spec[SHELVED_DISK] = shelve.disk
    shelved = replace(instance, state=InstanceState.SHELVED, power_state=PowerState.SHUTDOWN)
    shelved = replace(shelved, request_spec=spec)
    uow.instances.save(replace(shelved, fault=None, updated_at=uow.now))
    return shelve


@shelve_instance.step
def offload(shelve: Shelve, uow: UnitOfWork) -> Outcome[Shelve]:
    """Where asked, remove the guest from the host; a dead one does so when it comes back."""
    return _dispatch(shelve, uow, "destroy", done_if_down=True) if shelve.offload else shelve


@shelve_instance.step
def release(shelve: Shelve, uow: UnitOfWork) -> Outcome[Shelve]:
    """Release its allocation on the host with it."""
    instance = must_get(uow, shelve.instance_id)
    if shelve.offload:
        instance = release_instance(uow, instance)
        instance = replace(instance, state=InstanceState.SHELVED_OFFLOADED)
    uow.instances.save(replace(instance, task_state=None, updated_at=uow.now))
    return shelve


@shelve_instance.failed
def stay(shelve: Shelve, fault: Json, uow: UnitOfWork) -> None:
    """It is as it was, with the fault."""
    leave_as_it_was(uow, shelve.instance_id, fault)


@shelve_instance.met
def is_met(request: Request, old: OperationRecord, uow: UnitOfWork) -> str | None:
    """Say that it is shelved already, and offloaded where that was asked, if it is."""
    instance = uow.instances.get(old.instance_id or "")
    offloaded = instance is not None and instance.state is InstanceState.SHELVED_OFFLOADED
    kept = instance is not None and instance.state is InstanceState.SHELVED
    met = offloaded or (kept and not cast(ShelveInstance, request).offload)
    return "it is shelved already" if met else None


def _is_saved(instance: Instance, disk: Json | None) -> bool:
    """Say whether a shelved instance needs its host no more."""
    shelved = instance.state is InstanceState.SHELVED
    return shelved and (disk is not None or not has_local_disk(instance))


def _dispatch(
    shelve: Shelve, uow: UnitOfWork, verb: str, *, done_if_down: bool = False
) -> DispatchToHost[Shelve]:
    host = must_get(uow, shelve.instance_id).host or ""
    return DispatchToHost(shelve, host, shelve.instance_id, verb, done_if_down=done_if_down)
