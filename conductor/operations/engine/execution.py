"""Execution: runs a step, applies the reply that it waits for, goes to the next, succeeds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from conductor.operations.engine import completion, dispatch
from conductor.operations.engine.context import Ids, TransitionContext, raise_if_of_the_store
from conductor.operations.engine.definition import (
    AwaitChildren,
    DispatchToHost,
    DispatchToScheduler,
)
from conductor.operations.engine.rollback import defect, handle_failure
from conductor.store import OperationRecord
from models.errors import ConductorError
from models.json_types import Json
from models.lifecycle import OperationState


def run_step(context: TransitionContext, record: OperationRecord) -> Ids:
    """Run the step at which the operation is; one that raises leaves nothing behind."""
    step = context.step(record)
    try:
        with context.uow.savepoint():
            outcome = step.run(context.load(record), context.uow)
            if not isinstance(outcome, DispatchToHost | DispatchToScheduler | AwaitChildren):
                return move_on(context, record, outcome)
            waiting, done = dispatch.dispatch_step(
                context, context.with_state(record, outcome.state), outcome
            )
            if done:
                return move_on(context, waiting, outcome.state)
            return dispatch.children_to_start(context, waiting)
    except ConductorError as error:
        raise_if_of_the_store(error)
        return handle_failure(context, record, error, began=False)
    except Exception as error:  # noqa: BLE001 - a defect ends the operation, not the process
        return handle_failure(context, record, defect(record, error), began=False)


def apply_reply(context: TransitionContext, record: OperationRecord, result: Json) -> Ids:
    """Apply the reply to a step's dispatch and go to the next step."""
    step = context.step(record)
    try:
        with context.uow.savepoint():
            state = context.load(record)
            if step.on_reply is not None:
                state = step.on_reply(state, result, context.uow)
            return move_on(context, record, state)
    except ConductorError as error:
        raise_if_of_the_store(error)
        return handle_failure(context, record, error, began=True)
    except Exception as error:  # noqa: BLE001 - a defect ends the operation, not the process
        return handle_failure(context, record, defect(record, error), began=True)


def move_on(context: TransitionContext, record: OperationRecord, state: Any) -> Ids:
    """Go to the next step, or succeed behind the last."""
    definition = context.definition(record)
    place = definition.index(record.step) + 1
    moved = replace(context.with_state(record, state), waiting=None, waiting_on=None, tries=0)
    if place == len(definition.steps):
        result = definition.describe(state)
        return completion.close(context.uow, moved, OperationState.SUCCEEDED, result)
    step = definition.steps[place].name
    context.save(replace(moved, step=step, state=OperationState.RUNNING), context.settings.grace_s)
    return [record.id]
