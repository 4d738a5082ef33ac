"""Queries of the commands: a few statements each, whatever the number of rows."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from conductor.cli.rendering.json_views import Action, HostStatus, OperationHistory
from conductor.cli.rendering.render_layout import Guest
from conductor.operations.engine.wait_reasons import ON_HOST
from conductor.store import (
    Heartbeat,
    Host,
    Instance,
    Migration,
    OperationRecord,
    Registration,
    Rows,
    StartsWith,
    UnitOfWork,
)
from models.errors import Rejected
from models.lifecycle import InstanceState

T = TypeVar("T")

_BEGINNING: Final = re.compile(r"[0-9a-f][0-9a-f-]{3,35}")
_CHUNK = 500
"""Keys a statement: databases limit how many values one may hold."""


def histories_of(
    uow: UnitOfWork, records: Sequence[OperationRecord]
) -> dict[str, OperationHistory]:
    """Return children, events and decisions of many operations."""
    ids = [record.id for record in records]
    children: dict[str, list[Any]] = defaultdict(list)
    events: dict[str, list[Any]] = defaultdict(list)
    decisions: dict[str, list[Any]] = defaultdict(list)
    for some in chunks(ids):
        for child in uow.operations.where(parent_id=some):
            children[child.parent_id or ""].append(child)
        for event in uow.events.where(operation_id=some):
            events[event.operation_id].append(event)
        for decision in uow.decisions.where(operation_id=some):
            decisions[decision.operation_id].append(decision)
    return {id_: OperationHistory(children[id_], events[id_], decisions[id_]) for id_ in ids}


def full_history(uow: UnitOfWork, record: OperationRecord) -> OperationHistory:
    """Return the history of one operation, with the decisions made for its children."""
    history = histories_of(uow, [record])[record.id]
    ids = [child.id for child in history.children]
    decisions = [
        decision for some in chunks(ids) for decision in uow.decisions.where(operation_id=some)
    ]
    return replace(history, decisions=[*history.decisions, *decisions])


def operations_on_host(uow: UnitOfWork, host: str, found: Iterable[OperationRecord]) -> set[str]:
    """Return the ids of those operations that wait for a host, tried it, or whose instance it has.

    A request for several instances counts where one of its children does.
    """
    here = {instance.id for instance in uow.instances.where(host=host)}
    touching = [record for record in found if _touches(record, host, here)]
    return {id_ for record in touching for id_ in (record.id, record.parent_id) if id_}


def host_statuses_of(
    uow: UnitOfWork, hosts: Sequence[Host], down_after_s: float
) -> list[HostStatus]:
    """Return hosts with their heartbeats and the instances that hold something of them."""
    names = [host.name for host in hosts]
    beats: dict[str, Heartbeat] = {}
    served: dict[str, Registration] = {}
    held: dict[str, list[str]] = defaultdict(list)
    for some in chunks(names):
        beats.update((beat.name, beat) for beat in uow.heartbeats.where(name=some))
        served.update(
            (registration.host, registration) for registration in uow.registrations.where(host=some)
        )
        for allocation in uow.allocations.where(provider=some, consumer_kind="instance"):
            held[allocation.provider].append(allocation.consumer_id)
    return [
        HostStatus(
            host,
            beats.get(host.name),
            served.get(host.name),
            held[host.name],
            uow.now,
            down_after_s,
        )
        for host in hosts
    ]


def guests_of(uow: UnitOfWork, host: str) -> list[Guest]:
    """Return the instances of a host as a picture of it needs them."""
    return [
        Guest(instance.name, instance.flavor.vcpus, instance.flavor.memory_mib, instance.placement)
        for instance in uow.instances.where(host=host)
        if instance.state is not InstanceState.DELETED
    ]


def hosts_named(uow: UnitOfWork, names: Sequence[str]) -> list[Host]:
    """Return the named hosts, in the order of the names; raise `Rejected` for an unknown one."""
    found: dict[str, Host] = {}
    for some in chunks(names):
        found.update((host.name, host) for host in uow.hosts.where(name=some))
    for name in names:
        if name not in found:
            raise Rejected("host_unknown", f"host is {name}: no such host", key="host")
    return [found[name] for name in names]


def only_one(rows: Rows[T], text: str, what: str, key: str) -> T | None:
    """Return the record whose id is this, or the only one whose id begins so.

    At least four characters, as lists on narrow terminals show eight; raises `Rejected`
    (`id_ambiguous`) where several begin so.
    """
    lowered = text.lower()
    found = rows.get(lowered)
    if found is not None or not _BEGINNING.fullmatch(lowered):
        return found
    some = rows.where(id=StartsWith(lowered), limit=2)
    if len(some) > 1:
        message = f"{key} is {text}: the ids of several {what} begin so; use more of it"
        raise Rejected("id_ambiguous", message, key=key)
    return some[0] if some else None


def instance_named(uow: UnitOfWork, text: str) -> Instance:
    """Return the instance with this id, the only living one of this name, or whose id begins so.

    Raises `Rejected` when there is none, or more than one.
    """
    by_id = uow.instances.get(text.lower())
    if by_id is not None:
        return by_id
    named = [i for i in uow.instances.where(name=text) if i.state is not InstanceState.DELETED]
    begins = only_one(uow.instances, text, "instances", "instance") if not named else None
    if begins is not None:
        return begins
    if not named:
        message = f"instance is {text}: no instance has this id or name"
        raise Rejected("instance_unknown", message, key="instance")
    if len(named) > 1:
        message = f"instance is {text}: {len(named)} instances have this name; use an id"
        raise Rejected("instance_ambiguous", message, key="instance")
    return named[0]


def actions_of(uow: UnitOfWork, text: str) -> list[Action]:
    """Return what was done to an instance, oldest first, given its id or a name that one has.

    Also of one that never found a host, has been deleted, or has no record any more; raises
    `Rejected` when nothing is known of it.
    """
    instance_id = text.lower()
    records = uow.operations.where(instance_id=instance_id)
    if not records:
        instance_id = instance_named(uow, text).id
        records = uow.operations.where(instance_id=instance_id)
    moves = {
        migration.operation_id: migration
        for migration in uow.migrations.where(instance_id=instance_id)
    }
    return [_action(uow, record, moves.get(record.id)) for record in records]


def _action(uow: UnitOfWork, record: OperationRecord, move: Migration | None) -> Action:
    """Return one action, with the decisions and events of the request that it belongs to."""
    ids = [record.id, record.parent_id] if record.parent_id else [record.id]
    return Action(
        record,
        [event for id_ in reversed(ids) for event in uow.events.where(operation_id=id_)],
        uow.decisions.where(operation_id=ids, instance_id=record.instance_id),
        move,
    )


def operation_of(uow: UnitOfWork, operation_id: str) -> OperationRecord:
    """Return the operation; raise `Rejected` when there is none."""
    record = only_one(uow.operations, operation_id, "operations", "operation")
    if record is None:
        message = f"operation is {operation_id}: no such operation"
        raise Rejected("operation_unknown", message, key="operation")
    return record


def chunks(keys: Sequence[T]) -> Iterator[Sequence[T]]:
    """Return the keys in parts that one statement can hold."""
    for start in range(0, len(keys), _CHUNK):
        yield keys[start : start + _CHUNK]


def _touches(record: OperationRecord, host: str, here: set[str]) -> bool:
    if record.waiting_on == ON_HOST + host or (record.instance_id or "") in here:
        return True
    return any(attempt.get("host") == host for attempt in record.attempts)
