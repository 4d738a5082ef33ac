"""Records as the contract shows them in JSON. Times are UTC in ISO 8601."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from conductor.liveness import is_up, state_of
from conductor.operations.engine.wait_reasons import is_dispatch
from conductor.placement.resources import left_of
from conductor.store import (
    CatalogueEntry,
    Decision,
    Event,
    Heartbeat,
    Host,
    Instance,
    Migration,
    OperationRecord,
    Registration,
    UnitOfWork,
)
from models.json_types import JsonDict
from models.lifecycle import OperationState
from models.messages.hardware.hardware_json import (
    flavor_to_json,
    host_to_json,
    image_to_json,
    placement_to_json,
)


@dataclass(frozen=True, slots=True)
class OperationHistory:
    """Children, events and decisions of one operation."""

    children: Sequence[OperationRecord] = ()
    events: Sequence[Event] = ()
    decisions: Sequence[Decision] = ()


@dataclass(frozen=True, slots=True)
class Action:
    """One operation on an instance, with the events and decisions of its request too."""

    record: OperationRecord
    events: Sequence[Event] = ()
    decisions: Sequence[Decision] = ()
    migration: Migration | None = None


@dataclass(frozen=True, slots=True)
class HostStatus:
    """A host with its heartbeat, registration and instances at one moment."""

    host: Host
    heartbeat: Heartbeat | None
    registration: Registration | None
    instances: Sequence[str]
    now: float
    down_after_s: float


def moment(at: float | None) -> str | None:
    """Return Unix seconds as `2026-01-31T12:00:00.123Z`."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


_GOES_BACK = (OperationState.UNDOING, OperationState.STUCK)


def operation_view(
    record: OperationRecord, history: OperationHistory, now: float | None = None
) -> JsonDict:
    """Return what `operations show` prints."""
    return {
        "id": record.id,
        "kind": record.kind,
        "state": record.state.value,
        "step": record.step,
        "instance_id": record.instance_id,
        "parent_id": record.parent_id,
        "replay_of": record.replay_of,
        "error": dict(record.error) if record.error else None,
        "created_at": moment(record.created_at),
        "ended_at": moment(record.ended_at),
        "project_id": record.project_id,
        "user_id": record.user_id,
        "request_id": record.request_id,
        "undoing": record.undoing and record.state in _GOES_BACK,
        "attempt": record.attempt,
        "attempts": [dict(attempt) for attempt in record.attempts],
        "waiting_on": record.waiting_on,
        "asked": unanswered_view(record, time.time() if now is None else now),
        "deadline_at": moment(record.deadline_at),
        "children": [child.id for child in history.children],
        "children_by_state": dict(Counter(child.state.value for child in history.children)),
        "instances": _instances_of(record, history.children),
        "decisions": [decision_view(decision) for decision in history.decisions],
        "events": [
            {"at": moment(event.at), "event": event.event, "detail": event.detail}
            for event in history.events
        ],
    }


def unanswered_view(record: OperationRecord, now: float) -> JsonDict | None:
    """Return what an operation has dispatched and waits for: host, verb, since when; None without.

    `for_s` is by the clock of the database.
    """
    if record.waiting is None or record.asked_at is None or not is_dispatch(record.waiting_on):
        return None
    return {
        "host": record.waiting.get("host"),
        "verb": record.waiting.get("verb"),
        "since": moment(record.asked_at),
        "for_s": round(max(0.0, now - record.asked_at), 3),
        "asked": record.waiting.get("asked", 1),
    }


def event_view(event: Event, kind: str) -> JsonDict:
    """Return one event, as `operations watch` prints it."""
    return {
        "at": moment(event.at),
        "operation_id": event.operation_id,
        "kind": kind,
        "instance_id": event.instance_id,
        "event": event.event,
        "detail": event.detail,
    }


def decision_view(decision: Decision) -> JsonDict:
    """Return why the scheduler chose what it chose."""
    return {
        "at": moment(decision.at),
        "instance_id": decision.instance_id,
        "host": decision.host,
        "detail": dict(decision.detail),
    }


def instance_view(instance: Instance) -> JsonDict:
    """Return what `instances show` prints."""
    return {
        "id": instance.id,
        "name": instance.name,
        "state": instance.state.value,
        "task_state": instance.task_state.value if instance.task_state else None,
        "power_state": instance.power_state.value,
        "host": instance.host,
        "flavor": flavor_to_json(instance.flavor),
        "image": image_to_json(instance.image) if instance.image else None,
        "placement": placement_to_json(instance.placement) if instance.placement else None,
        "fault": dict(instance.fault) if instance.fault else None,
        "project_id": instance.project_id,
        "user_id": instance.user_id,
        "metadata": dict(instance.request_spec.get("metadata") or {}),
        "tags": list(instance.request_spec.get("tags") or ()),
        "availability_zone": instance.availability_zone,
        "group": instance.group,
        "operation_id": instance.operation_id,
        "created_at": moment(instance.created_at),
        "updated_at": moment(instance.updated_at),
        "deleted_at": moment(instance.deleted_at),
    }


def migration_view(uow: UnitOfWork, move: Migration) -> JsonDict:
    """Return `migrations show`: both ends, what each has allocated, and the history."""
    events = sorted(uow.events.where(operation_id=move.operation_id), key=lambda event: event.at)
    held: dict[str, Counter[str]] = {}
    for consumer in (move.id, move.instance_id):
        for allocation in uow.allocations.where(consumer_id=consumer):
            held.setdefault(allocation.provider, Counter()).update(allocation.amounts)
    return {
        "id": move.id,
        "instance_id": move.instance_id,
        "kind": move.kind.value,
        "state": move.state.value,
        "source": move.source,
        "target": move.target,
        "operation_id": move.operation_id,
        "source_flavor": move.source_flavor.name,
        "target_flavor": move.target_flavor.name,
        "progress_percent": move.progress_percent,
        "held": held,
        "error": dict(move.error) if move.error else None,
        "created_at": moment(move.created_at),
        "updated_at": moment(move.updated_at),
        "story": [{"at": moment(e.at), "what": f"{e.event} {e.detail}".strip()} for e in events],
    }


def action_view(action: Action) -> JsonDict:
    """Return one line of `instances actions`: who requested what, when, and how it ended."""
    record, move = action.record, action.migration
    return {
        "operation_id": record.id,
        "kind": record.kind,
        "state": record.state.value,
        "project_id": record.project_id,
        "user_id": record.user_id,
        "request_id": record.request_id,
        "created_at": moment(record.created_at),
        "ended_at": moment(record.ended_at),
        "error": dict(record.error) if record.error else None,
        "parent_id": record.parent_id,
        "replay_of": record.replay_of,
        "migration": None
        if move is None
        else {
            "id": move.id,
            "kind": move.kind.value,
            "state": move.state.value,
            "source": move.source,
            "target": move.target,
        },
        "events": _action_events(action),
    }


def _action_events(action: Action) -> list[JsonDict]:
    """Return what happened in order, the scheduler's decisions among it."""
    chosen = [(decision.at, "scheduled", _decided(decision)) for decision in action.decisions]
    happened = [(event.at, event.event, event.detail) for event in action.events]
    ordered = sorted([*happened, *chosen], key=lambda entry: entry[0])
    return [{"at": moment(at), "event": event, "detail": text} for at, event, text in ordered]


def _decided(decision: Decision) -> str:
    error = decision.detail.get("error")
    if decision.host is not None or not error:
        return f"{decision.host}, one of {decision.detail.get('hosts', '?')} hosts"
    return f"no valid host: {error.get('message')}"


def host_view(status: HostStatus) -> JsonDict:
    """Return what `hosts show` prints."""
    host = status.host
    state, reason = state_of(host, up=_is_up(status))
    return {
        "name": host.name,
        "state": state.value,
        "reason": reason,
        "cells": host_to_json(host.topology)["cells"],
        "usage": _usage(host),
        "instances": list(status.instances),
        "hypervisor": host.hypervisor,
        "traits": list(host.traits),
        "seen_at": moment(status.heartbeat.seen_at) if status.heartbeat else None,
        **_served(status.registration),
    }


def _served(registration: Registration | None) -> JsonDict:
    """Return what is to be known of the worker of a host, and of what it has beyond its instances.

    `unexpected_guests` are left alone: the first by name, with the reason; all are counted.
    """
    if registration is None:
        return {"unexpected_guests": [], "unexpected_count": 0, "refused_worker": None, "notes": []}
    refused = registration.refused
    return {
        "unexpected_guests": [dict(row) for row in registration.unexpected],
        "unexpected_count": registration.unexpected_count,
        "refused_worker": dict(refused) if refused else None,
        "notes": [dict(note) for note in registration.notes],
    }


def entry_view(entry: CatalogueEntry) -> JsonDict:
    """Return a flavor, image, aggregate, zone, server group or quota as it was defined."""
    return {**entry.body, "created_at": moment(entry.created_at)}


def _usage(host: Host) -> JsonDict:
    return {
        name: {
            "total": inventory.total,
            "reserved": inventory.reserved,
            "ratio": inventory.ratio,
            "used": host.used.get(name, 0),
            "free": max(0, left_of(host, name)),
            "over_committed": max(0, -left_of(host, name)),
        }
        for name, inventory in host.inventory.items()
    }


def _is_up(status: HostStatus) -> bool:
    return is_up(status.host, status.heartbeat, status.now - status.down_after_s)


def _instances_of(record: OperationRecord, children: Sequence[OperationRecord]) -> list[str]:
    """Return the instances that an operation is about: its own, or those of its children."""
    named: Mapping[str, Any] = record.data
    ids = named.get("instances") or [child.instance_id for child in children]
    own = [record.instance_id] if record.instance_id else []
    return [*own, *(id_ for id_ in ids if id_)]
