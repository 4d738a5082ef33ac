"""Rollback: what follows a failed step, and how steps are compensated, newest first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import structlog

from conductor.operations.engine import completion, dispatch
from conductor.operations.engine.completion import add_event
from conductor.operations.engine.context import Ids, TransitionContext, raise_if_of_the_store
from conductor.operations.engine.definition import (
    MAX_ATTEMPTS,
    AwaitChildren,
    DispatchToHost,
    DispatchToScheduler,
    Step,
)
from conductor.operations.engine.wait_reasons import ON_CHILDREN, ON_PARENT, ON_PAUSE
from conductor.store import OperationRecord
from models.errors import (
    Broken,
    ConductorError,
    Rejected,
    error_from_json,
)
from models.lifecycle import OperationState

log = structlog.get_logger(__name__)


def handle_failure(
    context: TransitionContext, record: OperationRecord, error: ConductorError, *, began: bool
) -> Ids:
    """Go on after a failed step: retry it behind the pivot, else roll back, or try another host.

    `began` says that a host may have done half of it, so that the step itself is undone too; one
    that has refused has changed nothing, so an undo there would act where nothing happened. For
    the same reason a refused pivot can still be rolled back.
    """
    attempt = {
        "step": record.step,
        "attempt": record.attempt,
        "host": host_of(record, error),
        "error": error.to_json(),
    }
    noted = replace(record, attempts=(*record.attempts, attempt))
    add_event(context.uow, record, "failed", f"{record.step}: {error.message}")
    at_pivot = context.step(record).pivot
    if not context.past_pivot(record) or (at_pivot and not began):
        return roll_back(context, noted, error, began=began)
    return pause(context, noted, error)


def roll_back(
    context: TransitionContext, record: OperationRecord, error: ConductorError, *, began: bool
) -> Ids:
    """Begin to undo: from this step if half of it may have happened, else from the one before."""
    rolled_back = replace(
        record,
        state=OperationState.UNDOING,
        undoing=True,
        resume_step=_resume_step(record, context.step(record), error),
        error=error.to_json(),
        waiting=None,
        waiting_on=None,
        tries=0,
    )
    if not began:
        return _to_previous(context, rolled_back)
    context.save(rolled_back, context.settings.grace_s)
    return [record.id]


def undo(context: TransitionContext, record: OperationRecord) -> Ids:
    """Run the undo of the step at which the operation is."""
    step = context.step(record)
    if step.run_undo is None:
        return after_undo(context, record)
    try:
        with context.uow.savepoint():
            outcome = step.run_undo(context.load(record), context.uow)
            if not isinstance(outcome, DispatchToHost | DispatchToScheduler | AwaitChildren):
                return after_undo(context, context.with_state(record, outcome))
            waiting, done = dispatch.dispatch_step(
                context, context.with_state(record, outcome.state), outcome
            )
            return after_undo(context, waiting) if done else []
    except ConductorError as error:
        raise_if_of_the_store(error)
        return pause(context, record, error)
    except Exception as error:  # noqa: BLE001 - a defect ends the operation, not the process
        return pause(context, record, defect(record, error))


def after_undo(context: TransitionContext, record: OperationRecord) -> Ids:
    """Go on after an undo: execute again where another host is tried, else undo the step before."""
    add_event(context.uow, record, "undone", record.step)
    free = replace(record, waiting=None, waiting_on=None, tries=0)
    if record.step != record.resume_step or record.cancel:
        return _to_previous(context, free)
    resumed = replace(
        free,
        undoing=False,
        resume_step=None,
        error=None,
        attempt=record.attempt + 1,
        state=OperationState.RUNNING,
    )
    context.save(resumed, context.settings.grace_s)
    return [record.id]


def finish_rollback(context: TransitionContext, record: OperationRecord) -> Ids:
    """Fail, once the children that still run have ended, too."""
    if record.children_left > 0:
        waiting = replace(record, waiting_on=ON_CHILDREN)
        context.save(waiting, context.settings.ask_again_s)
        return _fail_children(context, record)
    error = record.error or cancelled(record).to_json()
    fault = completion.fault_of(record.attempts, error)
    on_failure = context.definition(record).on_failure
    if on_failure is not None:
        on_failure(context.load(record), fault, context.uow)
    state = OperationState.CANCELLED if record.cancel else OperationState.FAILED
    ended = replace(record, step=_failed_step(record), error=fault)
    return completion.close(context.uow, ended, state, {})


def pause(context: TransitionContext, record: OperationRecord, error: ConductorError) -> Ids:
    """Try the same again later; after `max_tries`, give up in the way that harms least."""
    tries = record.tries + 1
    if tries >= context.settings.max_tries:
        return give_up(context, record, error)
    paused = replace(record, tries=tries, waiting_on=ON_PAUSE)
    context.save(paused, context.settings.backoff_s * 2 ** (tries - 1))
    return []


def give_up(context: TransitionContext, record: OperationRecord, error: ConductorError) -> Ids:
    """Stop trying. An undo that a host keeps refusing leaves that host degraded; the rest goes on.

    Its next inventory reports show what it still holds. Behind the pivot, and where our own undo
    fails, only a person can say what is right: STUCK.
    """
    host = host_of(record, error)
    known = context.uow.hosts.lock(host) if host and record.undoing else None
    if known is None:
        return _given_up(context, record, error)
    reason = f"could not undo {record.step} of {record.instance_id}: {error.message}"
    context.uow.hosts.save(replace(known, degraded=reason, version=known.version + 1))
    add_event(context.uow, record, "host-degraded", f"{host}: {reason}")
    return after_undo(context, record)


def _given_up(context: TransitionContext, record: OperationRecord, error: ConductorError) -> Ids:
    """Fail in the way the operation has foreseen behind its pivot, or be stuck."""
    on_given_up = context.definition(record).on_given_up
    if on_given_up is None or record.undoing:
        return end_stuck(context, record, error)
    fault = completion.fault_of(record.attempts, error.to_json())
    on_given_up(context.load(record), fault, context.uow)
    record = replace(record, error=fault)
    return completion.close(context.uow, record, OperationState.FAILED, {})


def end_stuck(context: TransitionContext, record: OperationRecord, error: ConductorError) -> Ids:
    """End where only a person can go on."""
    log.error("operation stuck: a person is needed", operation=record.id, error=error.to_json())
    record = replace(record, error=error.to_json())
    return completion.close(context.uow, record, OperationState.STUCK, {})


def host_of(record: OperationRecord, error: ConductorError | None) -> str | None:
    """Return the host of the newest dispatch, or that the error is about."""
    if record.waiting is not None and "host" in record.waiting:
        return str(record.waiting["host"])
    host = error.data.get("host") if error is not None else None
    return str(host) if host else None


def cancelled(record: OperationRecord) -> Rejected:
    """Return the error of an operation that was cancelled, at the step it had reached."""
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


def _failed_step(record: OperationRecord) -> str:
    """Return the step that failed, or at which it was cancelled; not the last one undone."""
    step = ((record.error or {}).get("data") or {}).get("step")
    if step in (None, "") and record.attempts:
        step = record.attempts[-1]["step"]
    return str(step or record.step)


def _to_previous(context: TransitionContext, record: OperationRecord) -> Ids:
    definition = context.definition(record)
    place = definition.index(record.step)
    if place == 0:
        return finish_rollback(context, record)
    context.save(replace(record, step=definition.steps[place - 1].name), context.settings.grace_s)
    return [record.id]


def _resume_step(record: OperationRecord, step: Step[Any], error: ConductorError) -> str | None:
    """Return where to go forward from again, when another host may do what this one did not."""
    if step.retry_from is None or record.cancel or record.attempt >= MAX_ATTEMPTS:
        return None
    return None if isinstance(error, Rejected) else step.retry_from.name


def _fail_children(context: TransitionContext, record: OperationRecord) -> Ids:
    """Roll back the children that have not begun; those at work end by themselves."""
    error = error_from_json(dict(record.error or cancelled(record).to_json()))
    ids: Ids = []
    for child in context.uow.operations.where(parent_id=record.id, ended_at=None):
        locked = completion.locked(context.uow, child.id)
        if locked is not None and locked.waiting_on == ON_PARENT:
            ids += roll_back(context, locked, error, began=True)
    return ids
