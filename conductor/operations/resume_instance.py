"""Let a suspended instance go on from its saved memory."""

from __future__ import annotations

from conductor.operations.engine.definition import DispatchToHost, NewOperation, Operation, Outcome
from conductor.operations.steps.instance_steps import leave_as_it_was, must_get
from conductor.operations.steps.power_steps import Power, begin, host_of, write_state
from conductor.store import OperationRecord, UnitOfWork
from models.json_types import Json
from models.lifecycle import InstanceState, PowerState, TaskState
from models.messages.requests import Request

resume_instance = Operation("resume_instance", Power)


@resume_instance.accept
def check(new: NewOperation, uow: UnitOfWork) -> Power:
    """Only a suspended instance can be resumed."""
    return begin(new, uow, InstanceState.SUSPENDED, TaskState.RESUMING)


@resume_instance.step
def go_on(power: Power, uow: UnitOfWork) -> Outcome[Power]:
    """Have its host read the memory back."""
    return DispatchToHost(power, host_of(power, uow), power.instance_id, "power_on")


@go_on.undo
def suspend_again(power: Power, uow: UnitOfWork) -> Outcome[Power]:
    """What went on by half is saved again."""
    host = must_get(uow, power.instance_id).host or ""
    return DispatchToHost(power, host, power.instance_id, "suspend", done_if_down=True)


@resume_instance.step
def activate(power: Power, uow: UnitOfWork) -> Outcome[Power]:
    """Say that it runs."""
    write_state(power, uow, InstanceState.ACTIVE, PowerState.RUNNING)
    return power


@resume_instance.failed
def stay_suspended(power: Power, fault: Json, uow: UnitOfWork) -> None:
    """Leave it as it was, with the fault."""
    leave_as_it_was(uow, power.instance_id, fault)


@resume_instance.met
def is_met(_: Request, old: OperationRecord, uow: UnitOfWork) -> str | None:
    """Say that it runs already, if it does."""
    instance = uow.instances.get(old.instance_id or "")
    met = instance is not None and instance.state is InstanceState.ACTIVE
    return "it runs already" if met else None
