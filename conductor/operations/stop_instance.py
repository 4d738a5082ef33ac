"""Power an active instance off; it keeps its host, CPUs and memory."""

from __future__ import annotations

from conductor.operations.engine.definition import DispatchToHost, NewOperation, Operation, Outcome
from conductor.operations.steps.instance_steps import leave_as_it_was, must_get
from conductor.operations.steps.power_steps import Power, begin, host_of, write_state
from conductor.store import OperationRecord, UnitOfWork
from models.json_types import Json
from models.lifecycle import InstanceState, PowerState, TaskState
from models.messages.requests import Request

stop_instance = Operation("stop_instance", Power)


@stop_instance.accept
def check(new: NewOperation, uow: UnitOfWork) -> Power:
    """Only an active instance can be stopped."""
    return begin(new, uow, InstanceState.ACTIVE, TaskState.POWERING_OFF)


@stop_instance.step
def power_off(power: Power, uow: UnitOfWork) -> Outcome[Power]:
    """Tell its host."""
    return DispatchToHost(power, host_of(power, uow), power.instance_id, "power_off")


@power_off.undo
def power_back_on(power: Power, uow: UnitOfWork) -> Outcome[Power]:
    """What could not be stopped goes on running."""
    host = must_get(uow, power.instance_id).host or ""
    return DispatchToHost(power, host, power.instance_id, "power_on", done_if_down=True)


@stop_instance.step
def mark_stopped(power: Power, uow: UnitOfWork) -> Outcome[Power]:
    """Say that it is off."""
    write_state(power, uow, InstanceState.STOPPED, PowerState.SHUTDOWN)
    return power


@stop_instance.failed
def stay_active(power: Power, fault: Json, uow: UnitOfWork) -> None:
    """Leave it as it was, with the fault."""
    leave_as_it_was(uow, power.instance_id, fault)


@stop_instance.met
def is_met(_: Request, old: OperationRecord, uow: UnitOfWork) -> str | None:
    """Say that it is stopped already, if it does."""
    instance = uow.instances.get(old.instance_id or "")
    met = instance is not None and instance.state is InstanceState.STOPPED
    return "it is stopped already" if met else None
