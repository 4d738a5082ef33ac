"""Build one instance on a host: claim, spawn, activate; another host when one refuses."""

from __future__ import annotations

from dataclasses import dataclass, replace

from conductor.operations.engine.definition import (
    DispatchToHost,
    DispatchToScheduler,
    NewOperation,
    Operation,
    Outcome,
)
from conductor.operations.steps.instance_steps import must_get, spawn_args
from conductor.placement.local.instance_allocations import release_instance
from conductor.store import OperationRecord, UnitOfWork
from models.errors import NoValidHost, Rejected
from models.json_types import Json
from models.lifecycle import InstanceState, PowerState, TaskState
from models.messages.internal import HostRequest
from models.messages.requests import Request


@dataclass(frozen=True, slots=True)
class Build:
    """Where one build stands. `tried` are hosts that did not do it."""

    instance_id: str
    forced_host: str | None = None
    alternates: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()


build_instance = Operation("build_instance", Build)


@build_instance.step
def claim_host(build: Build, uow: UnitOfWork) -> Outcome[Build]:
    """Have a host selected, the alternates of the first selection before any other.

    The first claim is made by the parent, for all instances at once: this step then only
    stands for it, and its undo releases it.
    """
    if build.forced_host and build.tried:
        raise NoValidHost("forced_host_failed", f"only {build.forced_host} was allowed")
    host_request = HostRequest(
        instance_id=build.instance_id, operation_id=_operation_of(build, uow)
    )
    return DispatchToScheduler(
        build, (host_request,), alternates=build.alternates, ignored=build.tried
    )


@claim_host.reply
def host_claimed(build: Build, result: Json, _: UnitOfWork) -> Build:
    """Keep the hosts that remain; the claim itself is already written."""
    return replace(build, alternates=tuple(result["selected"][0]["alternates"]))


@claim_host.undo
def give_claim_back(build: Build, uow: UnitOfWork) -> Outcome[Build]:
    """Release what is allocated to the instance, and do not go to that host again."""
    instance = must_get(uow, build.instance_id)
    released = release_instance(uow, instance)
    uow.instances.save(replace(released, task_state=TaskState.SCHEDULING))
    return replace(build, tried=(*build.tried, instance.host)) if instance.host else build


@build_instance.step(retry_from=claim_host)
def spawn(build: Build, uow: UnitOfWork) -> Outcome[Build]:
    """Tell the host to create the guest on exactly the claimed CPUs and pages."""
    instance = must_get(uow, build.instance_id)
    if instance.host is None:
        raise NoValidHost("nothing_claimed", "no host was claimed for it")
    uow.instances.save(replace(instance, task_state=TaskState.SPAWNING))
    return DispatchToHost(build, instance.host, instance.id, "spawn", spawn_args(uow, instance))


@spawn.undo
def destroy(build: Build, uow: UnitOfWork) -> Outcome[Build]:
    """Remove what may have been created; a dead host does so when it comes back."""
    instance = must_get(uow, build.instance_id)
    if instance.host is None:
        return build
    return DispatchToHost(build, instance.host, instance.id, "destroy", done_if_down=True)


@build_instance.step
def activate(build: Build, uow: UnitOfWork) -> Outcome[Build]:
    """Hand the instance over to its owner."""
    instance = must_get(uow, build.instance_id)
    uow.instances.save(
        replace(
            instance,
            state=InstanceState.ACTIVE,
            task_state=None,
            power_state=PowerState.RUNNING,
            fault=None,
            updated_at=uow.now,
        )
    )
    return build


@build_instance.failed
def leave_in_error(build: Build, fault: Json, uow: UnitOfWork) -> None:
    """Keep the instance with its fault, and nothing allocated."""
    instance = must_get(uow, build.instance_id)
    uow.instances.save(
        replace(
            instance,
            state=InstanceState.ERROR,
            task_state=None,
            fault=fault,
            updated_at=uow.now,
        )
    )


@build_instance.result
def built(build: Build) -> Json:
    """Return the id of the instance."""
    return {"instance_id": build.instance_id}


def _operation_of(build: Build, uow: UnitOfWork) -> str:
    return str(must_get(uow, build.instance_id).operation_id)


@build_instance.replay
def build_again(_: NewOperation, old: OperationRecord, uow: UnitOfWork) -> Build:
    """Begin anew for the same instance: hosts that refused it then may take it now."""
    instance = must_get(uow, old.instance_id or "")
    if instance.state is not InstanceState.ERROR or instance.host is not None:
        message = f"instance {instance.id} is {instance.state}, not a build that has failed"
        raise Rejected("instance_state", message, key="instance_id")
    uow.instances.save(
        replace(instance, state=InstanceState.BUILDING, task_state=TaskState.SCHEDULING, fault=None)
    )
    return replace(build_instance.load(old.data), alternates=(), tried=())


@build_instance.met
def is_met(_: Request, old: OperationRecord, uow: UnitOfWork) -> str | None:
    """Say that it runs already, if it does."""
    instance = uow.instances.get(old.instance_id or "")
    met = instance is not None and instance.state is InstanceState.ACTIVE
    return "it is active already" if met else None
