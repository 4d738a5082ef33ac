"""What starting and stopping have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from conductor.operations.engine.definition import NewOperation
from conductor.operations.steps.instance_steps import must_get
from conductor.store import Instance, UnitOfWork
from models.errors import Broken, Rejected
from models.lifecycle import InstanceState, PowerState, TaskState
from models.messages.requests import InstanceRequest


@dataclass(frozen=True, slots=True)
class Power:
    """Whose power changes."""

    instance_id: str


def begin(
    new: NewOperation, uow: UnitOfWork, needed: InstanceState, task_state: TaskState
) -> Power:
    """Check that the instance is in the state `needed` and say what is being done to it."""
    instance = in_one_of(cast(InstanceRequest, new.request), uow, (needed,))
    uow.instances.save(replace(instance, task_state=task_state, updated_at=uow.now))
    return Power(instance.id)


def in_one_of(
    request: InstanceRequest, uow: UnitOfWork, states: Sequence[InstanceState]
) -> Instance:
    """Return the instance; raise `Rejected` when it is unknown or in none of the states."""
    instance = uow.instances.get(request.instance_id)
    if instance is None or instance.state is InstanceState.DELETED:
        message = f"instance_id is {request.instance_id}: no such instance"
        raise Rejected("instance_unknown", message, key="instance_id")
    if instance.state not in states:
        needed = " or ".join(states)
        message = f"instance {instance.id} is {instance.state}: it must be {needed}"
        raise Rejected("instance_state", message, key="instance_id")
    return instance


def host_of(power: Power, uow: UnitOfWork) -> str:
    """Return the host of an instance that must have one."""
    host = must_get(uow, power.instance_id).host
    if host is None:
        raise Broken("no_host", f"instance {power.instance_id} has no host")
    return host


def write_state(
    power: Power, uow: UnitOfWork, state: InstanceState, power_state: PowerState
) -> None:
    """Write the state that the operation has brought about."""
    instance = must_get(uow, power.instance_id)
    settled = replace(instance, state=state, power_state=power_state, task_state=None, fault=None)
    uow.instances.save(replace(settled, updated_at=uow.now))
