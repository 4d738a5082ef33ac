"""What every transition works with: the definitions, the engine's timeouts, one unit of work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from conductor.operations.engine.definition import Operation, Step
from conductor.store import OperationRecord, UnitOfWork
from models.errors import ConductorError, Rejected, is_of_the_store

Ids = list[str]
"""Operations that can go on at once: what every transition returns."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Times of the engine; `grace_s` is how long a ready operation may lie before it is reaped."""

    down_after_s: float = 30.0
    ask_again_s: float = 15.0
    grace_s: float = 5.0
    backoff_s: float = 1.0
    max_tries: int = 8


@dataclass(frozen=True, slots=True)
class TransitionContext:
    """What the functions of one transition share."""

    definitions: Mapping[str, Operation[Any]]
    settings: EngineSettings
    uow: UnitOfWork

    def definition(self, record: OperationRecord) -> Operation[Any]:
        """Return the definition of an operation."""
        return self.definitions[record.kind]

    def step(self, record: OperationRecord) -> Step[Any]:
        """Return the step at which an operation is."""
        definition = self.definitions[record.kind]
        return definition.steps[definition.index(record.step)]

    def past_pivot(self, record: OperationRecord) -> bool:
        """Say whether there is no way back any more."""
        return self.definitions[record.kind].past_pivot(record.step)

    def can_roll_back(self, record: OperationRecord) -> bool:
        """Say whether the operation goes forward and can still be rolled back."""
        return not record.undoing and not self.past_pivot(record)

    def can_go_elsewhere(self, record: OperationRecord) -> bool:
        """Say whether the operation is executing and could do without the next dispatch's host.

        At the pivot it can still be rolled back, as long as nothing has been dispatched.
        """
        return not record.undoing and (self.can_roll_back(record) or self.step(record).pivot)

    def deadline_error(self, record: OperationRecord) -> Rejected | None:
        """Return the error of an operation whose time is over while it can be rolled back.

        Rejected, since no other host could do it in time either.
        """
        deadline = record.deadline_at
        if deadline is None or deadline > self.uow.now or not self.can_roll_back(record):
            return None
        at = record.step
        return Rejected("deadline_exceeded", f"not done in time, at {at}", step=at)

    def load(self, record: OperationRecord) -> Any:
        """Return the operation's typed state."""
        return self.definitions[record.kind].load(record.data)

    def with_state(self, record: OperationRecord, state: Any) -> OperationRecord:
        """Return the record with another state."""
        return replace(record, data=self.definitions[record.kind].dump(state))

    def save(self, record: OperationRecord, wait_s: float) -> None:
        """Save an operation that lives on and is looked at again after `wait_s`."""
        wake_at = self.uow.now + wait_s
        deadline = record.deadline_at
        if deadline is not None and deadline > self.uow.now and self.can_roll_back(record):
            wake_at = min(wake_at, deadline)
        self.uow.operations.save(replace(record, wake_at=wake_at, updated_at=self.uow.now))


def raise_if_of_the_store(error: ConductorError) -> None:
    """Raise what says nothing of the step: the transaction failed, and is run again as a whole.

    A deadlock, or a database that is lost, full or read-only, must not end the operation.
    """
    if is_of_the_store(error):
        raise error
