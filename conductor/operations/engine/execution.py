"""The way forward: run a step, wait for what it asks, go to the next, succeed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from conductor.operations.engine import completion, dispatch
from conductor.operations.engine.context import Ids, Scope, raise_if_of_the_store
from conductor.operations.engine.definition import (
    AwaitChildren,
    DispatchToHost,
    DispatchToScheduler,
)
from conductor.operations.engine.rollback import defect, failed
from conductor.store.records import OperationRecord
from models.errors import ConductorError
from models.json_types import Json
from models.lifecycle import OperationState


def run_step(scope: Scope, record: OperationRecord) -> Ids:
    """Run the step at which the operation is; one that raises leaves nothing behind."""
    step = scope.step(record)
    try:
        with scope.uow.savepoint():
            outcome = step.run(scope.load(record), scope.uow)
            if not isinstance(outcome, DispatchToHost | DispatchToScheduler | AwaitChildren):
                return move_on(scope, record, outcome)
            asked, answered = dispatch.ask(scope, scope.with_state(record, outcome.state), outcome)
            if answered:
                return move_on(scope, asked, outcome.state)
            return dispatch.children_to_start(scope, asked)
    except ConductorError as error:
        raise_if_of_the_store(error)
        return failed(scope, record, error, began=False)
    except Exception as error:  # noqa: BLE001 - a defect ends the operation, not the process
        return failed(scope, record, defect(record, error), began=False)


def answered(scope: Scope, record: OperationRecord, result: Json) -> Ids:
    """Apply the answer to a step's ask and go to the next step."""
    step = scope.step(record)
    try:
        with scope.uow.savepoint():
            state = scope.load(record)
            if step.on_reply is not None:
                state = step.on_reply(state, result, scope.uow)
            return move_on(scope, record, state)
    except ConductorError as error:
        raise_if_of_the_store(error)
        return failed(scope, record, error, began=True)
    except Exception as error:  # noqa: BLE001 - a defect ends the operation, not the process
        return failed(scope, record, defect(record, error), began=True)


def move_on(scope: Scope, record: OperationRecord, state: Any) -> Ids:
    """Go to the next step, or succeed behind the last."""
    definition = scope.definition(record)
    place = definition.index(record.step) + 1
    moved = replace(scope.with_state(record, state), waiting=None, waiting_on=None, tries=0)
    if place == len(definition.steps):
        result = definition.describe(state)
        return completion.close(scope.uow, moved, OperationState.SUCCEEDED, result)
    step = definition.steps[place].name
    scope.save(replace(moved, step=step, state=OperationState.RUNNING), scope.settings.grace_s)
    return [record.id]
