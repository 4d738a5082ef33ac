"""Let an active instance stand still; its memory stays where it is."""

from __future__ import annotations

from conductor.operations.engine.definition import DispatchToHost, NewOperation, Operation, Outcome
from conductor.operations.steps.instance_steps import leave_as_it_was, must_get
from conductor.operations.steps.power_steps import Power, begin, host_of, write_state
from conductor.store import OperationRecord, UnitOfWork
from models.json_types import Json
from models.lifecycle import InstanceState, PowerState, TaskState
from models.messages.requests import Request

pause_instance = Operation("pause_instance", Power)


@pause_instance.accept
def check(new: NewOperation, uow: UnitOfWork) -> Power:
    """Only an active instance can be paused."""
    return begin(new, uow, InstanceState.ACTIVE, TaskState.PAUSING)


@pause_instance.step
def pause(power: Power, uow: UnitOfWork) -> Outcome[Power]:
    """Tell its host."""
    return DispatchToHost(power, host_of(power, uow), power.instance_id, "pause")


@pause.undo
def go_on(power: Power, uow: UnitOfWork) -> Outcome[Power]:
    """What could not be paused goes on running."""
    host = must_get(uow, power.instance_id).host or ""
    return DispatchToHost(power, host, power.instance_id, "power_on", done_if_down=True)


@pause_instance.step
def mark_paused(power: Power, uow: UnitOfWork) -> Outcome[Power]:
    """Say that it stands still."""
    write_state(power, uow, InstanceState.PAUSED, PowerState.PAUSED)
    return power


@pause_instance.failed
def stay_active(power: Power, fault: Json, uow: UnitOfWork) -> None:
    """Leave it as it was, with the fault."""
    leave_as_it_was(uow, power.instance_id, fault)


@pause_instance.met
def is_met(_: Request, old: OperationRecord, uow: UnitOfWork) -> str | None:
    """Say that it is paused already, if it does."""
    instance = uow.instances.get(old.instance_id or "")
    met = instance is not None and instance.state is InstanceState.PAUSED
    return "it is paused already" if met else None
