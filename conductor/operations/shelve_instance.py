"""Stop an instance for long; offloaded, it gives up its host too and keeps only its image."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from conductor.operations.definition import AskHost, NewOperation, Operation, Outcome
from conductor.operations.instances import leave_as_it_was, must_get
from conductor.operations.moves import check_alive, movable
from conductor.placement.claims import release_claim
from conductor.store.ports import UnitOfWork
from conductor.store.records import Json, OperationRecord
from models.lifecycle import InstanceState, PowerState, TaskState
from models.messages.requests import Request, ShelveInstance

_STATES = (InstanceState.ACTIVE, InstanceState.STOPPED, InstanceState.SHELVED)


@dataclass(frozen=True, slots=True)
class Shelve:
    """What is shelved, from which state, and whether it leaves its host."""

    instance_id: str
    before: InstanceState
    offload: bool


shelve_instance = Operation("shelve_instance", Shelve)


@shelve_instance.accept
def check(new: NewOperation, uow: UnitOfWork) -> Shelve:
    """It must have a host that is up; what is shelved already can still be offloaded."""
    request = cast(ShelveInstance, new.request)
    states = _STATES if request.offload else _STATES[:2]
    instance = movable(new, uow, states)
    check_alive(new, uow, instance.host or "")
    uow.instances.save(replace(instance, task_state=TaskState.SHELVING, updated_at=uow.now))
    return Shelve(instance.id, instance.state, request.offload)


@shelve_instance.step
def stop(shelve: Shelve, uow: UnitOfWork) -> Outcome[Shelve]:
    """Stop the guest."""
    return _ask(shelve, uow, "power_off")


@stop.undo
def start(shelve: Shelve, uow: UnitOfWork) -> Outcome[Shelve]:
    """Have it run again, if it did."""
    if shelve.before is not InstanceState.ACTIVE:
        return shelve
    return _ask(shelve, uow, "power_on", done_if_down=True)


@shelve_instance.step
def snapshot(shelve: Shelve, uow: UnitOfWork) -> Outcome[Shelve]:
    """Save its disk as an image, from which it comes back."""
    return _ask(shelve, uow, "snapshot")


@shelve_instance.pivot
def mark_shelved(shelve: Shelve, uow: UnitOfWork) -> Outcome[Shelve]:
    """From here on it is shelved, whatever becomes of its host."""
    instance = must_get(uow, shelve.instance_id)
    shelved = replace(instance, state=InstanceState.SHELVED, power_state=PowerState.SHUTDOWN)
    uow.instances.save(replace(shelved, fault=None, updated_at=uow.now))
    return shelve


@shelve_instance.step
def offload(shelve: Shelve, uow: UnitOfWork) -> Outcome[Shelve]:
    """Where asked, remove the guest from the host; a dead one does so when it comes back."""
    return _ask(shelve, uow, "destroy", done_if_down=True) if shelve.offload else shelve


@shelve_instance.step
def release(shelve: Shelve, uow: UnitOfWork) -> Outcome[Shelve]:
    """Give the host's room back with it."""
    instance = must_get(uow, shelve.instance_id)
    if shelve.offload:
        instance = release_claim(uow, instance)
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


def _ask(
    shelve: Shelve, uow: UnitOfWork, verb: str, *, done_if_down: bool = False
) -> AskHost[Shelve]:
    host = must_get(uow, shelve.instance_id).host or ""
    return AskHost(shelve, host, shelve.instance_id, verb, done_if_down=done_if_down)
