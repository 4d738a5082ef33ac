"""Let a paused instance go on where it stood still."""

from __future__ import annotations

from conductor.operations.engine.definition import DispatchToHost, NewOperation, Operation, Outcome
from conductor.operations.steps.instance_steps import leave_as_it_was, must_get
from conductor.operations.steps.power_steps import Power, begin, host_of, write_state
from conductor.store import OperationRecord, UnitOfWork
from models.json_types import Json
from models.lifecycle import InstanceState, PowerState, TaskState
from models.messages.requests import Request

unpause_instance = Operation("unpause_instance", Power)


@unpause_instance.accept
def check(new: NewOperation, uow: UnitOfWork) -> Power:
    """Only a paused instance can go on."""
    return begin(new, uow, InstanceState.PAUSED, TaskState.UNPAUSING)


@unpause_instance.step
def go_on(power: Power, uow: UnitOfWork) -> Outcome[Power]:
    """Tell its host."""
    return DispatchToHost(power, host_of(power, uow), power.instance_id, "power_on")


@go_on.undo
def pause_again(power: Power, uow: UnitOfWork) -> Outcome[Power]:
    """What went on by half stands still again."""
    host = must_get(uow, power.instance_id).host or ""
    return DispatchToHost(power, host, power.instance_id, "pause", done_if_down=True)


@unpause_instance.step
def activate(power: Power, uow: UnitOfWork) -> Outcome[Power]:
    """Say that it runs."""
    write_state(power, uow, InstanceState.ACTIVE, PowerState.RUNNING)
    return power


@unpause_instance.failed
def stay_paused(power: Power, fault: Json, uow: UnitOfWork) -> None:
    """Leave it as it was, with the fault."""
    leave_as_it_was(uow, power.instance_id, fault)


@unpause_instance.met
def is_met(_: Request, old: OperationRecord, uow: UnitOfWork) -> str | None:
    """Say that it runs already, if it does."""
    instance = uow.instances.get(old.instance_id or "")
    met = instance is not None and instance.state is InstanceState.ACTIVE
    return "it runs already" if met else None
