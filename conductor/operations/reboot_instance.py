"""Start an instance anew where it is: asked to end by itself, or at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from conductor.operations.engine.definition import DispatchToHost, NewOperation, Operation, Outcome
from conductor.operations.steps.instance_steps import leave_as_it_was, must_get
from conductor.operations.steps.power_steps import in_one_of
from conductor.store import UnitOfWork
from models.json_types import Json
from models.lifecycle import InstanceState, PowerState, TaskState
from models.messages.requests import RebootInstance


@dataclass(frozen=True, slots=True)
class Reboot:
    """Which instance is started anew, and whether it is asked first."""

    instance_id: str
    hard: bool


reboot_instance = Operation("reboot_instance", Reboot)

_SOFT = (InstanceState.ACTIVE,)
_HARD = (
    InstanceState.ACTIVE,
    InstanceState.STOPPED,
    InstanceState.PAUSED,
    InstanceState.SUSPENDED,
)


@reboot_instance.accept
def check(new: NewOperation, uow: UnitOfWork) -> Reboot:
    """Only an active instance can be asked; at once, any that has a guest."""
    request = cast(RebootInstance, new.request)
    instance = in_one_of(request, uow, _HARD if request.hard else _SOFT)
    task_state = TaskState.REBOOTING
    uow.instances.save(replace(instance, task_state=task_state, updated_at=uow.now))
    return Reboot(instance.id, request.hard)


@reboot_instance.step
def reboot(it: Reboot, uow: UnitOfWork) -> Outcome[Reboot]:
    """Tell its host."""
    host = must_get(uow, it.instance_id).host or ""
    return DispatchToHost(it, host, it.instance_id, "reboot", {"hard": it.hard})


@reboot.undo
def power_on(it: Reboot, uow: UnitOfWork) -> Outcome[Reboot]:
    """What was stopped halfway runs: nobody asked for it to be off."""
    host = must_get(uow, it.instance_id).host or ""
    return DispatchToHost(it, host, it.instance_id, "power_on", done_if_down=True)


@reboot_instance.step
def activate(it: Reboot, uow: UnitOfWork) -> Outcome[Reboot]:
    """Say that it runs."""
    instance = must_get(uow, it.instance_id)
    active = replace(instance, state=InstanceState.ACTIVE, power_state=PowerState.RUNNING)
    uow.instances.save(replace(active, task_state=None, fault=None, updated_at=uow.now))
    return it


@reboot_instance.failed
def stay(it: Reboot, fault: Json, uow: UnitOfWork) -> None:
    """Leave it as it was, with the fault."""
    leave_as_it_was(uow, it.instance_id, fault)
