"""Build `count` instances: choose and claim hosts for all of them or none, then let each build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from conductor.operations.build_instance import Build, build_instance, spawn
from conductor.operations.engine.children import (
    add_cancelled,
    add_children,
    new_child,
    start_child,
)
from conductor.operations.engine.definition import (
    AwaitChildren,
    DispatchToScheduler,
    NewOperation,
    Operation,
    Outcome,
)
from conductor.operations.steps.build_request import spec_of
from conductor.operations.steps.quota_check import Owner, check_again, size_of
from conductor.store import Instance, OperationRecord, UnitOfWork
from models.errors import Rejected
from models.ids import OperationId, child_instance_id
from models.json_types import Json
from models.lifecycle import InstanceState, OperationState, TaskState
from models.messages.internal import HostRequest
from models.messages.requests import BuildInstances, Request


@dataclass(frozen=True, slots=True)
class Builds:
    """Where the request stands: its instances in order, and where each could go instead."""

    count: int
    name: str
    instances: tuple[str, ...]
    alternates: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


build_instances = Operation("build_instances", Builds)


@build_instances.accept
def create_records(new: NewOperation, uow: UnitOfWork) -> Builds:
    """Write one instance and one child operation each, so that everything can be seen at once.

    A delete that came before cancels the build, as one that comes a moment later does.
    """
    request = cast(BuildInstances, new.request)
    spec = spec_of(request, uow)
    ids = tuple(child_instance_id(OperationId(new.id), i) for i in range(request.count))
    deleted = {known.id for known in uow.instances.where(id=ids)} if ids else set()
    built = [index for index, id_ in enumerate(ids) if id_ not in deleted]
    first = spec.instance(ids[0], uow.now)
    names = [request.instance.name] if request.count == 1 else _numbered(request)
    children = [_child(new, index, ids[index], uow.now) for index in built]
    instances = [
        replace(first, id=ids[i], name=names[i], operation_id=child.id)
        for i, child in zip(built, children, strict=True)
    ]
    uow.instances.add_many(instances)
    add_children(uow, children, instances)
    for index in set(range(request.count)) - set(built):
        add_cancelled(uow, _child(new, index, ids[index], uow.now), "superseded by delete_instance")
    return Builds(count=len(children), name=request.instance.name, instances=ids)


@build_instances.step
def choose_hosts(builds: Builds, uow: UnitOfWork) -> Outcome[Builds]:
    """Ask for hosts for every instance that is still wanted, if the quota still allows them all.

    It was checked when they were written; a limit lowered since fails every one.
    """
    living = [i for i in uow.instances.where(id=builds.instances) if _waits(i)]
    if living:
        first = living[0]
        size = size_of(first.flavor, first.image)
        check_again(uow, Owner(first.project_id, first.user_id), size)
    host_requests = tuple(
        HostRequest(instance_id=i.id, operation_id=str(i.operation_id)) for i in living
    )
    return DispatchToScheduler(builds, host_requests) if host_requests else builds


@choose_hosts.reply
def hosts_chosen(builds: Builds, result: Json, _: UnitOfWork) -> Builds:
    """Remember who was claimed where; the claims themselves are already written."""
    chosen = {one["instance_id"]: tuple(one["alternates"]) for one in result["selected"]}
    return replace(builds, alternates=chosen)


@build_instances.step
def start_builds(builds: Builds, uow: UnitOfWork) -> Outcome[Builds]:
    """Hand each claim to its child, which from here on runs by itself."""
    for instance_id, alternates in builds.alternates.items():
        instance = uow.instances.lock(instance_id)
        if instance is None or instance.operation_id is None:
            continue  # deleted meanwhile: its own undo releases the claim

        def with_alternates(build: Build, chosen: tuple[str, ...] = alternates) -> Build:
            return replace(build, alternates=chosen)

        start_child(
            uow,
            build_instance,
            instance.operation_id,
            spawn,
            with_alternates,
            OperationState.CLAIMED,
        )
    return AwaitChildren(builds)


@build_instances.result
def instance_ids(builds: Builds) -> Json:
    """Return the ids of the instances, in order."""
    return {"instances": list(builds.instances)}


@build_instances.replay
def build_again(new: NewOperation, old: OperationRecord, uow: UnitOfWork) -> Builds:
    """Begin anew for those of its instances that are in ERROR without a host; others are done."""
    builds = build_instances.load(old.data)
    failed = [
        instance
        for instance in uow.instances.lock_many(builds.instances).values()
        if instance.state is InstanceState.ERROR
        and instance.host is None
        and instance.operation_id is None
    ]
    if not failed:
        raise Rejected("nothing_failed", "none of its instances is a build that has failed")
    children = [
        _child(new, builds.instances.index(instance.id), instance.id, uow.now)
        for instance in failed
    ]
    again = [
        replace(
            instance,
            state=InstanceState.BUILDING,
            task_state=TaskState.SCHEDULING,
            operation_id=child.id,
            fault=None,
            updated_at=uow.now,
        )
        for instance, child in zip(failed, children, strict=True)
    ]
    for instance in again:
        uow.instances.save(instance)
    add_children(uow, children, again)
    return replace(builds, count=len(children), alternates={})


@build_instances.met
def is_met(_: Request, old: OperationRecord, uow: UnitOfWork) -> str | None:
    """Say that all its instances run already, if they do."""
    ids = build_instances.load(old.data).instances if old.data else ()
    active = uow.instances.count(id=ids, state=InstanceState.ACTIVE) if ids else 0
    return f"all {active} instances are active already" if ids and active == len(ids) else None


def _waits(instance: Instance) -> bool:
    return instance.state is InstanceState.BUILDING and instance.operation_id is not None


def _numbered(request: BuildInstances) -> list[str]:
    return [f"{request.instance.name}-{number}" for number in range(1, request.count + 1)]


def _child(new: NewOperation, index: int, instance_id: str, now: float) -> OperationRecord:
    request = cast(BuildInstances, new.request)
    build = Build(instance_id=instance_id, forced_host=request.instance.host)
    return new_child(new, build_instance, f"build-{index}", build, now, instance_id=instance_id)
