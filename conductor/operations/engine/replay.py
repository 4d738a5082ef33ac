"""Replay an operation that has failed: one of four outcomes, always by a new operation.

done      reality matches already: the new operation has succeeded, nothing was done;
forward   it goes on where the old one stopped, or from the start where that was undone;
back      what the old one left half undone is undone now;
refused   something is in the way: the new operation has failed, naming each conflict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from conductor.operations.engine.definition import NewOperation, Operation
from conductor.operations.engine.transitions import Engine
from conductor.store import OperationRecord, UnitOfWork
from models.errors import Rejected
from models.json_types import Json
from models.lifecycle import InstanceState, OperationState
from models.messages.requests import Request, parse_request

Outcome = Literal["done", "forward", "back", "refused"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a replay would do, why, and for `forward` and `back` from which step and state."""

    outcome: Outcome
    reasons: tuple[str, ...]
    step: str = ""
    data: Json | None = None

    def to_json(self) -> dict[str, Any]:
        """Return `{outcome, reasons, step}`."""
        return {"outcome": self.outcome, "reasons": list(self.reasons), "step": self.step}


def judge(engine: Engine, uow: UnitOfWork, old: OperationRecord, new_id: str) -> Verdict:
    """Say what becomes of a replay; `forward` from the start has then been accepted anew.

    Run it in a savepoint that is rolled back to ask without doing.
    """
    if old.state is OperationState.SUCCEEDED:
        return Verdict("done", (f"operation {old.id} has succeeded",))
    if not old.state.ended:
        return Verdict("refused", (f"operation {old.id} still runs: it is {old.state}",))
    definition = engine.definitions[old.kind]
    try:
        request = _request_of(uow, old)
    except Rejected as error:
        return Verdict("refused", (error.message,))
    conflicts = _conflicts(uow, definition, old)
    if conflicts:
        return Verdict("refused", conflicts)
    met = definition.is_met(request, old, uow) if definition.is_met else None
    if met:
        return Verdict("done", (met,))
    new = NewOperation(new_id, request, engine.settings.down_after_s)
    return _way(uow, definition, old, new)


def instance_of(uow: UnitOfWork, old: OperationRecord) -> str | None:
    """Return the instance that an operation is about, also where it was refused at the door.

    What was refused there holds no instance, but its request may name one, and its replay will
    hold that.
    """
    if old.instance_id is not None:
        return old.instance_id
    try:
        return getattr(_request_of(uow, old), "instance_id", None)
    except Rejected:
        return None


def _way(
    uow: UnitOfWork, definition: Operation[Any], old: OperationRecord, new: NewOperation
) -> Verdict:
    if old.state is OperationState.STUCK and old.undoing:
        return Verdict("back", (f"its undo stopped at {old.step}",), old.step, old.data)
    if old.step and not old.undoing and definition.past_pivot(old.step):
        return Verdict("forward", (f"it stopped at {old.step}",), old.step, old.data)
    first = definition.steps[0].name
    try:
        if definition.run_replay is not None and old.data:
            state = definition.run_replay(new, old, uow)
        elif definition.run_accept is not None:
            state = definition.run_accept(new, uow)
        else:
            return Verdict("refused", (f"a {old.kind} cannot be replayed",))
    except Rejected as error:
        return Verdict("refused", (error.message,))
    return Verdict("forward", ("it was undone to the start",), first, definition.dump(state))


def _conflicts(
    uow: UnitOfWork, definition: Operation[Any], old: OperationRecord
) -> tuple[str, ...]:
    """Name what is in the way, all of it: another operation, a deleted instance, a newer replay."""
    found = [
        f"replay {later.id} of it is {later.state}"
        for later in uow.operations.where(replay_of=old.id, kind=old.kind)  # a dry run is none
        if not later.state.ended or later.state is OperationState.SUCCEEDED
    ]
    if old.replay_of and not old.data:
        found.append(f"it is a replay that was refused: replay {old.replay_of} instead")
    if definition.version != old.definition_version and old.definition_version:
        found.append(f"it was made by definition version {old.definition_version}")
    instance_id = instance_of(uow, old)
    instance = uow.instances.lock(instance_id) if instance_id else None
    if old.instance_id and instance is None:
        found.append(f"instance {old.instance_id} has no record any more")
    deleted = instance is not None and instance.state is InstanceState.DELETED
    if deleted and old.kind != "delete_instance":
        found.append(f"instance {instance_id} has been deleted")
    running = uow.operations.get(instance.operation_id or "") if instance else None
    if running is not None and not running.state.ended:
        found.append(f"{running.kind} {running.id} runs on instance {instance_id}")
    return tuple(found)


def _request_of(uow: UnitOfWork, old: OperationRecord) -> Request:
    """Return the request of an operation; that of a child is its parent's."""
    parent = uow.operations.get(old.parent_id) if old.parent_id else None
    requested = parent or old
    return parse_request(f"conductor.{requested.kind}", requested.request)
