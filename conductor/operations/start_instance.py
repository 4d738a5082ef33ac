"""Power a stopped instance on, where it is."""

from __future__ import annotations

from conductor.operations.engine.definition import DispatchToHost, NewOperation, Operation, Outcome
from conductor.operations.steps.instance_steps import leave_as_it_was, must_get
from conductor.operations.steps.power_steps import Power, begin, host_of, write_state
from conductor.store import OperationRecord, UnitOfWork
from models.json_types import Json
from models.lifecycle import InstanceState, PowerState, TaskState
from models.messages.requests import Request

start_instance = Operation("start_instance", Power)


@start_instance.accept
def check(new: NewOperation, uow: UnitOfWork) -> Power:
    """Only a stopped instance can be started."""
    return begin(new, uow, InstanceState.STOPPED, TaskState.POWERING_ON)


@start_instance.step
def power_on(power: Power, uow: UnitOfWork) -> Outcome[Power]:
    """Tell its host."""
    return DispatchToHost(power, host_of(power, uow), power.instance_id, "power_on")


@power_on.undo
def power_back_off(power: Power, uow: UnitOfWork) -> Outcome[Power]:
    """Half a start is no start."""
    host = must_get(uow, power.instance_id).host or ""
    return DispatchToHost(power, host, power.instance_id, "power_off", done_if_down=True)


@start_instance.step
def activate(power: Power, uow: UnitOfWork) -> Outcome[Power]:
    """Say that it runs."""
    write_state(power, uow, InstanceState.ACTIVE, PowerState.RUNNING)
    return power


@start_instance.failed
def stay_stopped(power: Power, fault: Json, uow: UnitOfWork) -> None:
    """Leave it as it was, with the fault."""
    leave_as_it_was(uow, power.instance_id, fault)


@start_instance.met
def is_met(_: Request, old: OperationRecord, uow: UnitOfWork) -> str | None:
    """Say that it runs already, if it does."""
    instance = uow.instances.get(old.instance_id or "")
    met = instance is not None and instance.state is InstanceState.ACTIVE
    return "it runs already" if met else None
