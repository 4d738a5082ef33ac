"""The way back: what follows a failed step, and how steps are undone, newest first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import structlog

from conductor.operations.engine import completion, dispatch
from conductor.operations.engine.completion import tell
from conductor.operations.engine.context import Ids, Scope, raise_if_of_the_store
from conductor.operations.engine.definition import (
    MAX_ATTEMPTS,
    AwaitChildren,
    DispatchToHost,
    DispatchToScheduler,
    Step,
)
from conductor.operations.engine.wait_reasons import ON_CHILDREN, ON_PARENT, ON_PAUSE
from conductor.store.records import OperationRecord
from models.errors import (
    Broken,
    ConductorError,
    Rejected,
    error_from_json,
)
from models.lifecycle import OperationState

log = structlog.get_logger(__name__)


def failed(scope: Scope, record: OperationRecord, error: ConductorError, *, began: bool) -> Ids:
    """Go on after a failed step: try again behind the pivot, elsewhere, or turn back.

    `began` says that a host may have done half of it, so that the step itself is undone too; one
    that has refused has changed nothing, and an undo there would act where nothing happened. For
    the same reason a refused pivot still leaves a way back.
    """
    attempt = {
        "step": record.step,
        "attempt": record.attempt,
        "host": host_of(record, error),
        "error": error.to_json(),
    }
    noted = replace(record, attempts=(*record.attempts, attempt))
    tell(scope.uow, record, "failed", f"{record.step}: {error.message}")
    at_pivot = scope.step(record).pivot
    if not scope.past_pivot(record) or (at_pivot and not began):
        return turn_back(scope, noted, error, began=began)
    return pause(scope, noted, error)


def turn_back(scope: Scope, record: OperationRecord, error: ConductorError, *, began: bool) -> Ids:
    """Begin to undo: from this step if it may have half happened, else from the one before."""
    turned = replace(
        record,
        state=OperationState.UNDOING,
        undoing=True,
        resume_step=_resume_step(record, scope.step(record), error),
        error=error.to_json(),
        waiting=None,
        waiting_on=None,
        tries=0,
    )
    if not began:
        return _to_previous(scope, turned)
    scope.save(turned, scope.settings.grace_s)
    return [record.id]


def undo(scope: Scope, record: OperationRecord) -> Ids:
    """Run the undo of the step at which the operation is."""
    step = scope.step(record)
    if step.run_undo is None:
        return undone(scope, record)
    try:
        with scope.uow.savepoint():
            outcome = step.run_undo(scope.load(record), scope.uow)
            if not isinstance(outcome, DispatchToHost | DispatchToScheduler | AwaitChildren):
                return undone(scope, scope.with_state(record, outcome))
            asked, answered = dispatch.ask(scope, scope.with_state(record, outcome.state), outcome)
            return undone(scope, asked) if answered else []
    except ConductorError as error:
        raise_if_of_the_store(error)
        return pause(scope, record, error)
    except Exception as error:  # noqa: BLE001 - a defect ends the operation, not the process
        return pause(scope, record, defect(record, error))


def undone(scope: Scope, record: OperationRecord) -> Ids:
    """Go on after an undo: forward again where another host is tried, else further back."""
    tell(scope.uow, record, "undone", record.step)
    free = replace(record, waiting=None, waiting_on=None, tries=0)
    if record.step != record.resume_step or record.cancel:
        return _to_previous(scope, free)
    forward = replace(
        free,
        undoing=False,
        resume_step=None,
        error=None,
        attempt=record.attempt + 1,
        state=OperationState.RUNNING,
    )
    scope.save(forward, scope.settings.grace_s)
    return [record.id]


def all_undone(scope: Scope, record: OperationRecord) -> Ids:
    """Fail, once the children that still live have been taken along."""
    if record.children_left > 0:
        waiting = replace(record, waiting_on=ON_CHILDREN)
        scope.save(waiting, scope.settings.ask_again_s)
        return _fail_children(scope, record)
    error = record.error or cancelled(record).to_json()
    fault = completion.fault_of(record.attempts, error)
    on_failure = scope.definition(record).on_failure
    if on_failure is not None:
        on_failure(scope.load(record), fault, scope.uow)
    state = OperationState.CANCELLED if record.cancel else OperationState.FAILED
    ended = replace(record, step=_turned_at(record), error=fault)
    return completion.close(scope.uow, ended, state, {})


def pause(scope: Scope, record: OperationRecord, error: ConductorError) -> Ids:
    """Try the same again later; after `max_tries`, give up in the way that harms least."""
    tries = record.tries + 1
    if tries >= scope.settings.max_tries:
        return give_up(scope, record, error)
    paused = replace(record, tries=tries, waiting_on=ON_PAUSE)
    scope.save(paused, scope.settings.backoff_s * 2 ** (tries - 1))
    return []


def give_up(scope: Scope, record: OperationRecord, error: ConductorError) -> Ids:
    """Stop trying. An undo that a host keeps refusing leaves that host degraded; the rest goes on.

    Its next manifests show what it still holds. Behind the pivot, and where our own undo
    fails, only a person can say what is right: STUCK.
    """
    host = host_of(record, error)
    known = scope.uow.hosts.lock(host) if host and record.undoing else None
    if known is None:
        return _given_up(scope, record, error)
    reason = f"could not undo {record.step} of {record.instance_id}: {error.message}"
    scope.uow.hosts.save(replace(known, degraded=reason, version=known.version + 1))
    tell(scope.uow, record, "host-degraded", f"{host}: {reason}")
    return undone(scope, record)


def _given_up(scope: Scope, record: OperationRecord, error: ConductorError) -> Ids:
    """Fail in the way the operation has foreseen behind its pivot, or be stuck."""
    on_given_up = scope.definition(record).on_given_up
    if on_given_up is None or record.undoing:
        return stuck(scope, record, error)
    fault = completion.fault_of(record.attempts, error.to_json())
    on_given_up(scope.load(record), fault, scope.uow)
    record = replace(record, error=fault)
    return completion.close(scope.uow, record, OperationState.FAILED, {})


def stuck(scope: Scope, record: OperationRecord, error: ConductorError) -> Ids:
    """End where only a person can go on."""
    log.error("operation stuck: a person is needed", operation=record.id, error=error.to_json())
    record = replace(record, error=error.to_json())
    return completion.close(scope.uow, record, OperationState.STUCK, {})


def host_of(record: OperationRecord, error: ConductorError | None) -> str | None:
    """Return the host that was asked last, or that the error is about."""
    if record.waiting is not None and "host" in record.waiting:
        return str(record.waiting["host"])
    host = error.data.get("host") if error is not None else None
    return str(host) if host else None


def cancelled(record: OperationRecord) -> Rejected:
    """Return the error of an operation that somebody called back, at the step it had reached."""
    return Rejected("cancelled", record.cancel or "cancelled", step=record.step)


def defect(record: OperationRecord, error: Exception) -> Broken:
    """Return the error of a step that raised what it should not.

    What was raised may name anything, so it goes to our log, under the operation's id; the owner
    of the instance and whoever listens get the class and a sentence of ours.
    """
    log.error("a step has a defect", operation=record.id, step=record.step, exc_info=error)
    raised = type(error).__name__
    message = f"{record.step} met a defect ({raised}): the conductor's log has it"
    return Broken("defect", message, step=record.step, raised=raised)


def _turned_at(record: OperationRecord) -> str:
    """Return the step that failed, or at which it was called back; not the last one undone."""
    said = ((record.error or {}).get("data") or {}).get("step")
    if said in (None, "") and record.attempts:
        said = record.attempts[-1]["step"]
    return str(said or record.step)


def _to_previous(scope: Scope, record: OperationRecord) -> Ids:
    definition = scope.definition(record)
    place = definition.index(record.step)
    if place == 0:
        return all_undone(scope, record)
    scope.save(replace(record, step=definition.steps[place - 1].name), scope.settings.grace_s)
    return [record.id]


def _resume_step(record: OperationRecord, step: Step[Any], error: ConductorError) -> str | None:
    """Return where to go forward from again, when another host may do what this one did not."""
    if step.retry_from is None or record.cancel or record.attempt >= MAX_ATTEMPTS:
        return None
    return None if isinstance(error, Rejected) else step.retry_from.name


def _fail_children(scope: Scope, record: OperationRecord) -> Ids:
    """Turn back the children that have not begun; those at work end by themselves."""
    error = error_from_json(dict(record.error or cancelled(record).to_json()))
    ids: Ids = []
    for child in scope.uow.operations.where(parent_id=record.id, ended_at=None):
        locked = completion.locked(scope.uow, child.id)
        if locked is not None and locked.waiting_on == ON_PARENT:
            ids += turn_back(scope, locked, error, began=True)
    return ids
