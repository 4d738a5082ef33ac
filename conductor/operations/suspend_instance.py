"""Save the memory of an active instance and stop it; it keeps its place on the host."""

from __future__ import annotations

from conductor.operations.engine.definition import DispatchToHost, NewOperation, Operation, Outcome
from conductor.operations.steps.instance_steps import leave_as_it_was, must_get
from conductor.operations.steps.power_steps import Power, begin, host_of, write_state
from conductor.store import OperationRecord, UnitOfWork
from models.json_types import Json
from models.lifecycle import InstanceState, PowerState, TaskState
from models.messages.requests import Request

suspend_instance = Operation("suspend_instance", Power)


@suspend_instance.accept
def check(new: NewOperation, uow: UnitOfWork) -> Power:
    """Only an active instance can be suspended."""
    return begin(new, uow, InstanceState.ACTIVE, TaskState.SUSPENDING)


@suspend_instance.step
def suspend(power: Power, uow: UnitOfWork) -> Outcome[Power]:
    """Have its host save the memory."""
    return DispatchToHost(power, host_of(power, uow), power.instance_id, "suspend")


@suspend.undo
def go_on(power: Power, uow: UnitOfWork) -> Outcome[Power]:
    """What could not be saved goes on running."""
    host = must_get(uow, power.instance_id).host or ""
    return DispatchToHost(power, host, power.instance_id, "power_on", done_if_down=True)


@suspend_instance.step
def mark_suspended(power: Power, uow: UnitOfWork) -> Outcome[Power]:
    """Say that it is saved."""
    write_state(power, uow, InstanceState.SUSPENDED, PowerState.SUSPENDED)
    return power


@suspend_instance.failed
def stay_active(power: Power, fault: Json, uow: UnitOfWork) -> None:
    """Leave it as it was, with the fault."""
    leave_as_it_was(uow, power.instance_id, fault)


@suspend_instance.met
def is_met(_: Request, old: OperationRecord, uow: UnitOfWork) -> str | None:
    """Say that it is suspended already, if it does."""
    instance = uow.instances.get(old.instance_id or "")
    met = instance is not None and instance.state is InstanceState.SUSPENDED
    return "it is suspended already" if met else None
