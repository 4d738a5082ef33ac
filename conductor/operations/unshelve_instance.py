"""Bring a shelved instance back: a start where it kept its host, a host chosen anew where not.

Whatever goes wrong, it stays shelved as it was, with nothing claimed and the reason beside
it: also a missing image leaves it offloaded and not in ERROR.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

from conductor.liveness import host_is_up
from conductor.operations.engine.definition import (
    DispatchToHost,
    DispatchToScheduler,
    NewOperation,
    Operation,
    Outcome,
)
from conductor.operations.steps.instance_steps import (
    SHELVED_DISK,
    has_local_disk,
    leave_as_it_was,
    must_get,
    shelved_disk,
    spawn_args,
)
from conductor.placement.local.instance_allocations import release_instance
from conductor.store import Instance, OperationRecord, UnitOfWork
from models.errors import Rejected
from models.json_types import Json
from models.lifecycle import InstanceState, PowerState, TaskState
from models.messages.internal import HostRequest
from models.messages.requests import Request, UnshelveInstance


@dataclass(frozen=True, slots=True)
class Unshelve:
    """What comes back. `offloaded` says whether it needs a host; `tried` did not take it.

    `spec` is the request spec as it was: what is asked of this unshelve counts only if it succeeds.
    """

    instance_id: str
    offloaded: bool
    spec: dict[str, Any] = field(default_factory=dict)
    alternates: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()


unshelve_instance = Operation("unshelve_instance", Unshelve)


@unshelve_instance.accept
def check(new: NewOperation, uow: UnitOfWork) -> Unshelve:
    """It must be shelved; a host or zone can be named only where one is to be chosen.

    Earlier requirements on the host are forgotten: they were about the first build.
    """
    request = cast(UnshelveInstance, new.request)
    instance = uow.instances.get(request.instance_id)
    shelved = (InstanceState.SHELVED, InstanceState.SHELVED_OFFLOADED)
    if instance is None or instance.state not in shelved:
        state = instance.state if instance else "unknown"
        message = f"instance_id is {request.instance_id}: it is {state}, not shelved"
        raise Rejected("instance_state", message, key="instance_id")
    offloaded = instance.state is InstanceState.SHELVED_OFFLOADED
    _check_requested_place(request, uow, offloaded=offloaded)
    _check_disk(new, instance, uow, offloaded=offloaded)
    spec = dict(instance.request_spec)
    spec.pop("host", None)
    requested = {"host": request.host, "availability_zone": request.availability_zone}
    spec.update({name: value for name, value in requested.items() if value})
    begun = replace(instance, request_spec=spec, task_state=TaskState.UNSHELVING)
    uow.instances.save(replace(begun, updated_at=uow.now))
    return Unshelve(instance.id, offloaded, dict(instance.request_spec))


@unshelve_instance.step
def claim_host(unshelve: Unshelve, uow: UnitOfWork) -> Outcome[Unshelve]:
    """Where it has none, choose and claim a host."""
    if not unshelve.offloaded:
        return unshelve
    instance = must_get(uow, unshelve.instance_id)
    host_request = HostRequest(instance_id=instance.id, operation_id=str(instance.operation_id))
    return DispatchToScheduler(
        unshelve, (host_request,), alternates=unshelve.alternates, ignored=unshelve.tried
    )


@claim_host.reply
def host_claimed(unshelve: Unshelve, result: Json, _: UnitOfWork) -> Unshelve:
    """Keep the hosts that remain."""
    return replace(unshelve, alternates=tuple(result["selected"][0]["alternates"]))


@claim_host.undo
def give_claim_back(unshelve: Unshelve, uow: UnitOfWork) -> Outcome[Unshelve]:
    """Release the host and do not go there again."""
    if not unshelve.offloaded:
        return unshelve
    instance = must_get(uow, unshelve.instance_id)
    uow.instances.save(release_instance(uow, instance))
    if instance.host is None:
        return unshelve
    return replace(unshelve, tried=(*unshelve.tried, instance.host))


@unshelve_instance.step(retry_from=claim_host)
def start(unshelve: Unshelve, uow: UnitOfWork) -> Outcome[Unshelve]:
    """Create the guest on the disk that was saved, or start the one that was kept."""
    instance = must_get(uow, unshelve.instance_id)
    host = instance.host or ""
    if not unshelve.offloaded:
        return DispatchToHost(unshelve, host, instance.id, "power_on")
    args = spawn_args(uow, instance, shelved_disk(instance))
    return DispatchToHost(unshelve, host, instance.id, "spawn", args)


@start.undo
def stop(unshelve: Unshelve, uow: UnitOfWork) -> Outcome[Unshelve]:
    """Remove, or stop, what may have been started."""
    host = must_get(uow, unshelve.instance_id).host
    if host is None:
        return unshelve
    verb = "destroy" if unshelve.offloaded else "power_off"
    return DispatchToHost(unshelve, host, unshelve.instance_id, verb, done_if_down=True)


@unshelve_instance.step
def activate(unshelve: Unshelve, uow: UnitOfWork) -> Outcome[Unshelve]:
    """Hand it over."""
    instance = must_get(uow, unshelve.instance_id)
    # A host that was named was for this once; a zone is where it belongs from now on.
    done_with = ("host", SHELVED_DISK)
    spec = {name: value for name, value in instance.request_spec.items() if name not in done_with}
    active = replace(instance, state=InstanceState.ACTIVE, power_state=PowerState.RUNNING)
    done = replace(active, request_spec=spec, task_state=None, fault=None, updated_at=uow.now)
    uow.instances.save(done)
    return unshelve


@unshelve_instance.failed
def stay_shelved(unshelve: Unshelve, fault: Json, uow: UnitOfWork) -> None:
    """It stays shelved as it was, in the zone where it was, with the reason."""
    instance = must_get(uow, unshelve.instance_id)
    uow.instances.save(replace(instance, request_spec=unshelve.spec))
    leave_as_it_was(uow, unshelve.instance_id, fault)


@unshelve_instance.met
def is_met(request: Request, old: OperationRecord, uow: UnitOfWork) -> str | None:
    """Say that it is back already, where it was to be, if it is."""
    instance = uow.instances.get(old.instance_id or "")
    if instance is None or instance.state is not InstanceState.ACTIVE:
        return None
    wanted = cast(UnshelveInstance, request)
    here = wanted.host in (None, instance.host)
    in_zone = wanted.availability_zone in (None, instance.availability_zone)
    return f"it is active on {instance.host} already" if here and in_zone else None


def _check_disk(new: NewOperation, instance: Instance, uow: UnitOfWork, *, offloaded: bool) -> None:
    """Refuse to start from anything but the disk that it had."""
    if offloaded and has_local_disk(instance) and shelved_disk(instance) is None:
        message = f"instance {instance.id} has no snapshot of its disk to come back from"
        raise Rejected("snapshot_missing", message, key="instance_id")
    if not offloaded and not host_is_up(uow, instance.host or "", new.down_after_s):
        message = f"{instance.host} is down: offload the instance (shelve it so), or evacuate it"
        raise Rejected("host_down", message, key="instance_id")


def _check_requested_place(request: UnshelveInstance, uow: UnitOfWork, *, offloaded: bool) -> None:
    for name, value, known in (
        ("host", request.host, uow.hosts.get(request.host or "")),
        (
            "availability_zone",
            request.availability_zone,
            uow.catalogue.get("zone", request.availability_zone or ""),
        ),
    ):
        if value is not None and known is None:
            raise Rejected(f"{name}_unknown", f"{name} is {value}: unknown", key=name)
        if value is not None and not offloaded:
            message = f"{name} is {value}: the instance has kept its host"
            raise Rejected(f"{name}_not_free", message, key=name)
