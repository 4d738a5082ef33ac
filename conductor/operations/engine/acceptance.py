"""Acceptance: a request becomes an operation, idempotently by its id."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import structlog

from conductor.operations.engine.completion import add_event, close
from conductor.operations.engine.definition import NewOperation, Operation
from conductor.operations.engine.publish_notifications import notify
from conductor.operations.engine.replay import Verdict, instance_of, judge
from conductor.operations.engine.transitions import Engine
from conductor.operations.engine.wait_reasons import ON_INSTANCE
from conductor.store import Instance, OperationRecord, UnitOfWork
from models.errors import Broken, ConductorError, Conflict, Rejected, Unreachable
from models.json_types import Json
from models.lifecycle import OperationState
from models.messages.requests import ReplayOperation, Request, parse_request

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request as it came: nothing of it is checked yet except that `id` is a UUID.

    With a `fault` it is only recorded and refused.
    """

    id: str
    task: str
    body: Json
    reply_to: str | None = None
    fault: Rejected | None = None

    @property
    def digest(self) -> str:
        """A fingerprint of the request: the same id with another one is a mistake."""
        text = json.dumps([self.task, self.body], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()


def accept(engine: Engine, uow: UnitOfWork, incoming: Incoming) -> list[str]:
    """Record the operation, or its rejection, and return the operations that can go on.

    Raises `Rejected` (code `duplicate_id`) when the id belongs to another request.
    """
    known = uow.operations.get(incoming.id)
    if known is not None:
        if known.digest != incoming.digest:
            raise Rejected(
                "duplicate_id",
                f"operation {incoming.id} exists with another body; the first one stands",
                key="id",
            )
        return [known.id]
    if incoming.fault is not None:
        return _reject(uow, incoming, incoming.fault)
    try:
        request = parse_request(incoming.task, incoming.body)
        with uow.savepoint():
            if isinstance(request, ReplayOperation):
                return _replay(engine, uow, incoming, request)
            return _create(engine, uow, incoming, request)
    except Rejected as error:
        return _reject(uow, incoming, error)
    except (Conflict, Unreachable):
        raise  # nothing is wrong with the request: it is taken again
    except Exception as error:
        log.exception("a request met a defect", task=incoming.task, id=incoming.id)
        raised = type(error).__name__
        message = f"the request met a defect ({raised}): the conductor's log has it"
        return _reject(uow, incoming, Broken("defect", message, raised=raised))


def _create(engine: Engine, uow: UnitOfWork, incoming: Incoming, request: Request) -> list[str]:
    definition = engine.definitions[request.kind]
    if definition.run_accept is None:
        raise Rejected("task_unknown", f"{incoming.task} cannot be asked for", key="task")
    _lock_instance(uow, request)
    new = NewOperation(incoming.id, request, engine.settings.down_after_s)
    state = definition.run_accept(new, uow)
    record = replace(
        _record(uow, incoming, definition.version, OperationState.ACCEPTED),
        kind=definition.kind,
        step=definition.steps[0].name,
        data=definition.dump(state),
        instance_id=getattr(request, "instance_id", None),
        children_left=getattr(state, "count", 0),
        wake_at=uow.now,
        deadline_at=uow.now + (request.deadline_s or definition.deadline_s),
    )
    ids = _occupy_or_queue(engine, uow, definition, record)
    add_event(uow, record, "accepted", incoming.task)
    _notify_start(uow, record)
    return ids


class _DryRun(Exception):
    """Rolls the savepoint back in which a replay was only tried."""


def _replay(
    engine: Engine, uow: UnitOfWork, incoming: Incoming, request: ReplayOperation
) -> list[str]:
    old = uow.operations.get(request.operation_id)
    if old is None:
        message = f"operation_id is {request.operation_id}: no such operation"
        raise Rejected("operation_unknown", message, key="operation_id")
    definition = engine.definitions.get(old.kind)
    if definition is None:
        message = f"operation_id is {old.id}: a {old.kind} cannot be replayed"
        raise Rejected("operation_kind", message, key="operation_id")
    verdict = _judged(engine, uow, old, request, incoming.id)
    record = replace(
        _record(uow, incoming, definition.version, OperationState.ACCEPTED),
        replay_of=old.id,
        instance_id=instance_of(uow, old),
    )
    detail = f"{verdict.outcome}: {'; '.join(verdict.reasons)}"
    if request.dry_run:
        record = replace(record, data=verdict.to_json())
        uow.operations.add(record)
        add_event(uow, record, "replay-asked", detail)
        _notify_start(uow, record)
        return close(uow, record, OperationState.SUCCEEDED, verdict.to_json())
    record = replace(record, kind=old.kind, request=old.request)
    if verdict.outcome in ("done", "refused"):
        return _end_replay(uow, record, verdict)
    going = _resumed(uow, record, old, verdict)
    uow.operations.add(going)
    add_event(uow, going, "replay", detail)
    _occupy_instance(uow, going)
    _notify_start(uow, going)
    return [going.id]


def _judged(
    engine: Engine,
    uow: UnitOfWork,
    old: OperationRecord,
    request: ReplayOperation,
    new_id: str,
) -> Verdict:
    verdict = None
    with suppress(_DryRun), uow.savepoint():
        verdict = judge(engine, uow, old, new_id)
        if request.dry_run:
            raise _DryRun
    if verdict is None:
        raise Broken("replay_undecided", f"operation {old.id} cannot be judged")
    return verdict


def _end_replay(uow: UnitOfWork, record: OperationRecord, verdict: Verdict) -> list[str]:
    detail = "; ".join(verdict.reasons)
    if verdict.outcome == "done":
        uow.operations.add(record)
        add_event(uow, record, "replay", f"declared done: {detail}")
        _notify_start(uow, record)
        return close(uow, record, OperationState.SUCCEEDED, verdict.to_json())
    error = Rejected("replay_refused", detail, conflicts=list(verdict.reasons))
    refused = replace(record, error=error.to_json())
    uow.operations.add(refused)
    _notify_start(uow, refused)
    return close(uow, refused, OperationState.FAILED, {})


def _resumed(
    uow: UnitOfWork, record: OperationRecord, old: OperationRecord, verdict: Verdict
) -> OperationRecord:
    """Return the operation that goes on where the old one stopped, with tokens of its own."""
    back = verdict.outcome == "back"
    return replace(
        record,
        step=verdict.step,
        data=verdict.data or {},
        undoing=back,
        error=old.error if back else None,
        state=OperationState.UNDOING if back else OperationState.ACCEPTED,
        children_left=uow.operations.count(parent_id=record.id, ended_at=None),
        wake_at=uow.now,
        deadline_at=uow.now + 3_600.0,
    )


def _notify_start(uow: UnitOfWork, record: OperationRecord) -> None:
    if record.instance_id is not None:
        notify(uow, record, uow.instances.get(record.instance_id))


def _occupy_instance(uow: UnitOfWork, record: OperationRecord) -> None:
    instance = uow.instances.get(record.instance_id or "")
    if instance is not None:
        uow.instances.save(replace(instance, operation_id=record.id))


def _lock_instance(uow: UnitOfWork, request: Request) -> None:
    instance_id = getattr(request, "instance_id", None)
    if instance_id:
        uow.instances.lock(instance_id)


def _occupy_or_queue(
    engine: Engine, uow: UnitOfWork, definition: Operation[Any], record: OperationRecord
) -> list[str]:
    """Give the instance to the operation, or do with it what `when_busy` says."""
    if record.instance_id is None:
        uow.operations.add(record)
        return [record.id]
    # Locked anew: one that was not there to be locked before may have been committed since, with
    # the build that runs on it.
    instance = uow.instances.lock(record.instance_id)
    running = _running(uow, instance)
    if running is None:
        uow.operations.add(record)
        if instance is not None:
            uow.instances.save(replace(instance, operation_id=record.id))
        return [record.id]
    if definition.when_busy == "reject":
        raise Rejected(
            "instance_busy",
            f"instance_id is {record.instance_id}: {running.kind} {running.id} runs on it",
            key="instance_id",
        )
    uow.operations.add(replace(record, waiting_on=ON_INSTANCE, wake_at=uow.now + 30.0))
    if definition.when_busy == "supersede" and running.kind != definition.kind:
        return engine.cancel(uow, running.id, f"superseded by {definition.kind}")
    return []


def _running(uow: UnitOfWork, instance: Instance | None) -> OperationRecord | None:
    if instance is None or instance.operation_id is None:
        return None
    running = uow.operations.get(instance.operation_id)
    return running if running is not None and not running.state.ended else None


def _reject(uow: UnitOfWork, incoming: Incoming, error: ConductorError) -> list[str]:
    """Keep the refusal as an operation that ended at once, which a query of its id returns."""
    record = replace(_record(uow, incoming, 0, OperationState.ACCEPTED), error=error.to_json())
    uow.operations.add(record)
    return close(uow, record, OperationState.FAILED, {})


def _record(
    uow: UnitOfWork, incoming: Incoming, version: int, state: OperationState
) -> OperationRecord:
    context = incoming.body.get("context")
    who = context if isinstance(context, dict) else {}
    return OperationRecord(
        id=incoming.id,
        kind=incoming.task.removeprefix("conductor."),
        definition_version=version,
        state=state,
        step="",
        project_id=str(who.get("project_id", "")),
        user_id=str(who.get("user_id", "")),
        request_id=str(who.get("request_id", "")),
        request=incoming.body,
        digest=incoming.digest,
        data={},
        created_at=uow.now,
        updated_at=uow.now,
        root_id=incoming.id,
        reply_to=incoming.reply_to,
    )
