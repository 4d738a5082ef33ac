"""The engine: one call, one transition, one transaction.

A living operation is in one of two situations, and everything here is an arrow between them:

    ready     `waiting_on` is None: `advance` runs the step (or its undo) that `step` names;
    waiting   something is out: a reply with the newest sequence, or the clock, moves it on.

`wake_at` is set in both, so that the reaper finds whatever a dead process left behind. Nothing
here sends, sleeps or reads a clock: the unit of work carries the time and the outbox. Every
function returns the ids of the operations that can go on at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog

from conductor.liveness import host_is_up
from conductor.operations import asking, ending
from conductor.operations.definition import (
    MAX_ATTEMPTS,
    AskHost,
    AskScheduler,
    AwaitChildren,
    Operation,
    Outcome,
    Step,
)
from conductor.operations.ending import tell
from conductor.store.ports import UnitOfWork
from conductor.store.records import Json, OperationRecord
from models.errors import (
    Broken,
    ConductorError,
    HostRefused,
    Rejected,
    Unreachable,
    error_from_json,
)
from models.lifecycle import OperationState
from models.messages.letters import Reply

log = structlog.get_logger(__name__)
Ids = list[str]


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Times of the engine; `grace_s` is how long a ready operation may lie before it is reaped."""

    down_after_s: float = 30.0
    ask_again_s: float = 15.0
    grace_s: float = 5.0
    backoff_s: float = 1.0
    max_tries: int = 8


class Engine:
    """Moves operations by their definitions, one transition a call."""

    def __init__(
        self, definitions: Mapping[str, Operation[Any]], settings: EngineSettings | None = None
    ) -> None:
        self.definitions = definitions
        self.settings = settings or EngineSettings()

    def advance(self, uow: UnitOfWork, operation_id: str) -> Ids:
        """Make one transition if one is due; do nothing otherwise, whoever asks how often."""
        record = self.locked(uow, operation_id)
        if record is None or record.state.ended:
            return []
        definition = self.definitions.get(record.kind)
        if definition is None or definition.version != record.definition_version:
            return self._stuck(uow, record, _unknown_definition(record))
        if record.waiting_on is not None:
            return self._while_waiting(uow, record)
        if record.undoing:
            return self._undo(uow, record)
        if record.cancel and not definition.past_pivot(record.step):
            return self._turn_back(uow, record, _cancelled(record), began=False)
        return self._forward(uow, record)

    def reply(self, uow: UnitOfWork, reply: Reply) -> Ids:
        """Apply the answer to the ask that is out; any other answer changes nothing."""
        record = self.locked(uow, reply.token.operation_id)
        if record is None or record.state.ended or record.waiting is None:
            return []
        if record.sequence != reply.token.sequence:
            return []
        if record.undoing:
            return self._undo_answered(uow, record, reply)
        if reply.outcome != "done":
            return self._failed(uow, record, _error_of(reply), began=True)
        step = self._step(record)
        try:
            with uow.savepoint():
                state = self._load(record)
                if step.on_reply is not None:
                    state = step.on_reply(state, reply.result, uow)
                return self._move_on(uow, record, state)
        except ConductorError as error:
            return self._failed(uow, record, error, began=True)
        except Exception as error:  # noqa: BLE001 - a defect ends the operation, not the process
            return self._failed(uow, record, _defect(step, error), began=True)

    def cancel(self, uow: UnitOfWork, operation_id: str, reason: str) -> Ids:
        """Ask an operation to turn back at its next boundary; ended ones stay as they are."""
        record = self.locked(uow, operation_id)
        if record is None or record.state.ended or record.cancel is not None:
            return []
        cancelled = replace(record, cancel=reason, updated_at=uow.now)
        uow.operations.save(cancelled)
        tell(uow, cancelled, "cancel", reason)
        children = uow.operations.where(parent_id=record.id, ended_at=None)
        return [record.id, *(id_ for c in children for id_ in self.cancel(uow, c.id, reason))]

    def locked(self, uow: UnitOfWork, operation_id: str) -> OperationRecord | None:
        """Lock the operation behind its instance: always in that order, so that none deadlock."""
        record = uow.operations.get(operation_id)
        if record is None or record.state.ended:
            return record
        if record.instance_id is not None:
            uow.instances.lock(record.instance_id)
        return uow.operations.lock(operation_id)

    # -- forward ---------------------------------------------------------------------------

    def _forward(self, uow: UnitOfWork, record: OperationRecord) -> Ids:
        step = self._step(record)
        try:
            with uow.savepoint():
                return self._apply(uow, record, step.run(self._load(record), uow))
        except ConductorError as error:
            return self._failed(uow, record, error, began=False)
        except Exception as error:  # noqa: BLE001 - a defect ends the operation, not the process
            return self._failed(uow, record, _defect(step, error), began=False)

    def _apply(self, uow: UnitOfWork, record: OperationRecord, outcome: Outcome[Any]) -> Ids:
        """Save what a step returned: wait for what it asked, or go to the next step."""
        if not isinstance(outcome, AskHost | AskScheduler | AwaitChildren):
            return self._move_on(uow, record, outcome)
        return self._ask(uow, self._with_state(record, outcome.state), outcome)

    def _ask(
        self,
        uow: UnitOfWork,
        record: OperationRecord,
        ask: AskHost[Any] | AskScheduler[Any] | AwaitChildren[Any],
    ) -> Ids:
        again_s = self.settings.ask_again_s
        if isinstance(ask, AwaitChildren):
            asked = replace(record, waiting_on=asking.ON_CHILDREN, wake_at=uow.now + again_s)
            uow.operations.save(replace(asked, state=OperationState.RUNNING))
            if record.children_left <= 0:
                return [record.id]
            return [c.id for c in uow.operations.where(parent_id=record.id, waiting_on=None)]
        if isinstance(ask, AskScheduler):
            asked = asking.ask_scheduler(uow, record, ask, again_s)
            uow.operations.save(asked)
            tell(uow, asked, record.step, f"asked the scheduler for {len(ask.wants)}")
            return []
        up = host_is_up(uow, ask.host, self.settings.down_after_s)
        if not up and not ask.done_if_down:
            raise Unreachable("host_down", f"{ask.host} is down", host=ask.host)
        asked = asking.ask_host(uow, record, ask, again_s)
        uow.operations.save(asked)
        tell(uow, asked, record.step, f"{ask.verb} on {ask.host}")
        if up:
            return []
        return self._undone(uow, asked) if record.undoing else self._move_on(uow, asked, ask.state)

    def _move_on(self, uow: UnitOfWork, record: OperationRecord, state: Any) -> Ids:
        definition = self.definitions[record.kind]
        place = definition.index(record.step) + 1
        moved = replace(self._with_state(record, state), waiting=None, waiting_on=None, tries=0)
        if place == len(definition.steps):
            return self._succeed(uow, moved, state)
        uow.operations.save(
            replace(
                moved,
                step=definition.steps[place].name,
                state=OperationState.RUNNING,
                wake_at=uow.now + self.settings.grace_s,
                updated_at=uow.now,
            )
        )
        return [record.id]

    def _succeed(self, uow: UnitOfWork, record: OperationRecord, state: Any) -> Ids:
        result = self.definitions[record.kind].describe(state)
        return ending.close(uow, record, OperationState.SUCCEEDED, result)

    # -- failure and undo ------------------------------------------------------------------

    def _failed(
        self, uow: UnitOfWork, record: OperationRecord, error: ConductorError, *, began: bool
    ) -> Ids:
        """Go on after a failed step: try again behind the pivot, elsewhere, or turn back."""
        definition = self.definitions[record.kind]
        host = _host_asked(record, error)
        attempt = {"step": record.step, "attempt": record.attempt, "error": error.to_json()}
        noted = replace(record, attempts=(*record.attempts, {**attempt, "host": host}))
        tell(uow, record, "failed", f"{record.step}: {error.message}")
        step = self._step(record)
        behind = definition.past_pivot(record.step) and (not step.pivot or began)
        if behind and not (step.pivot and isinstance(error, HostRefused)):
            return self._pause(uow, noted, error)
        return self._turn_back(uow, noted, error, began=began)

    def _turn_back(
        self, uow: UnitOfWork, record: OperationRecord, error: ConductorError, *, began: bool
    ) -> Ids:
        """Begin to undo: from this step if it may have half happened, else from the one before."""
        definition = self.definitions[record.kind]
        step = self._step(record)
        resume = self._resume_step(record, step, error)
        turned = replace(
            record,
            state=OperationState.UNDOING,
            undoing=True,
            resume_step=resume,
            error=error.to_json(),
            waiting=None,
            waiting_on=None,
            tries=0,
            wake_at=uow.now + self.settings.grace_s,
            updated_at=uow.now,
        )
        if began:
            uow.operations.save(turned)
            return [record.id]
        place = definition.index(record.step)
        if place == 0:
            return self._all_undone(uow, turned)
        uow.operations.save(replace(turned, step=definition.steps[place - 1].name))
        return [record.id]

    def _resume_step(
        self, record: OperationRecord, step: Step[Any], error: ConductorError
    ) -> str | None:
        """Return where to go forward from again, when another host may do what this one did not."""
        if step.retry_from is None or record.cancel or record.attempt >= MAX_ATTEMPTS:
            return None
        return None if isinstance(error, Rejected) else step.retry_from.name

    def _undo(self, uow: UnitOfWork, record: OperationRecord) -> Ids:
        step = self._step(record)
        if step.run_undo is None:
            return self._undone(uow, record)
        try:
            with uow.savepoint():
                outcome = step.run_undo(self._load(record), uow)
                if isinstance(outcome, AskHost | AskScheduler | AwaitChildren):
                    return self._ask(uow, self._with_state(record, outcome.state), outcome)
                return self._undone(uow, self._with_state(record, outcome))
        except ConductorError as error:
            return self._pause(uow, record, error)
        except Exception as error:  # noqa: BLE001 - a defect ends the operation, not the process
            return self._pause(uow, record, _defect(step, error))

    def _undo_answered(self, uow: UnitOfWork, record: OperationRecord, reply: Reply) -> Ids:
        """A host that has seen something newer (`stale`) holds nothing of this any more."""
        if reply.outcome in ("done", "stale"):
            return self._undone(uow, record)
        return self._pause(uow, record, _error_of(reply))

    def _undone(self, uow: UnitOfWork, record: OperationRecord) -> Ids:
        definition = self.definitions[record.kind]
        tell(uow, record, "undone", record.step)
        free = replace(record, waiting=None, waiting_on=None, tries=0, updated_at=uow.now)
        if record.step == record.resume_step and not record.cancel:
            uow.operations.save(
                replace(
                    free,
                    undoing=False,
                    resume_step=None,
                    error=None,
                    attempt=record.attempt + 1,
                    state=OperationState.RUNNING,
                    wake_at=uow.now + self.settings.grace_s,
                )
            )
            return [record.id]
        place = definition.index(record.step)
        if place == 0:
            return self._all_undone(uow, free)
        previous = definition.steps[place - 1].name
        uow.operations.save(replace(free, step=previous, wake_at=uow.now + self.settings.grace_s))
        return [record.id]

    def _all_undone(self, uow: UnitOfWork, record: OperationRecord) -> Ids:
        """Fail, once the children that still live have been taken along."""
        if record.children_left > 0:
            uow.operations.save(
                replace(
                    record,
                    waiting_on=asking.ON_CHILDREN,
                    wake_at=uow.now + self.settings.ask_again_s,
                )
            )
            return self._fail_children(uow, record)
        definition = self.definitions[record.kind]
        error = record.error or _cancelled(record).to_json()
        fault = ending.fault_of(record.attempts, error)
        state = OperationState.CANCELLED if record.cancel else OperationState.FAILED
        failed = replace(record, error=fault)
        if definition.on_failure is not None:
            definition.on_failure(self._load(record), fault, uow)
        return ending.close(uow, failed, state, {})

    def _fail_children(self, uow: UnitOfWork, record: OperationRecord) -> Ids:
        error = error_from_json(dict(record.error or _cancelled(record).to_json()))
        ids: Ids = []
        for child in uow.operations.where(parent_id=record.id, ended_at=None):
            locked = self.locked(uow, child.id)
            if locked is not None and locked.waiting_on == asking.ON_PARENT:
                ids += self._turn_back(uow, locked, error, began=True)
        return ids

    def _pause(self, uow: UnitOfWork, record: OperationRecord, error: ConductorError) -> Ids:
        """Try the same again later; after `max_tries`, give up in the way that harms least."""
        tries = record.tries + 1
        if tries >= self.settings.max_tries:
            return self._give_up(uow, record, error)
        uow.operations.save(
            replace(
                record,
                tries=tries,
                waiting=None,
                waiting_on=asking.ON_PAUSE,
                wake_at=uow.now + self.settings.backoff_s * 2 ** (tries - 1),
                updated_at=uow.now,
            )
        )
        return []

    def _give_up(self, uow: UnitOfWork, record: OperationRecord, error: ConductorError) -> Ids:
        """An undo that a host keeps refusing leaves that host degraded, and the rest is undone.

        Its next manifests show what it still holds. Behind the pivot, and where our own undo
        fails, nothing is right any more but a person: STUCK.
        """
        host = _host_asked(record, error)
        known = uow.hosts.lock(host) if host and record.undoing else None
        if known is None:
            return self._stuck(uow, record, error)
        reason = f"could not undo {record.step} of {record.instance_id}: {error.message}"
        uow.hosts.save(replace(known, degraded=reason, version=known.version + 1))
        tell(uow, record, "host-degraded", f"{host}: {reason}")
        return self._undone(uow, record)

    def _stuck(self, uow: UnitOfWork, record: OperationRecord, error: ConductorError) -> Ids:
        log.error("operation stuck: a person is needed", operation=record.id, error=error.to_json())
        stuck = replace(record, error=error.to_json())
        return ending.close(uow, stuck, OperationState.STUCK, {})

    # -- waiting ---------------------------------------------------------------------------

    def _while_waiting(self, uow: UnitOfWork, record: OperationRecord) -> Ids:
        """Act on a cancel, on children that have ended, or on the clock."""
        turnable = not record.undoing and not self._is_past_pivot(record)
        if record.cancel and turnable and record.waiting_on != asking.ON_CHILDREN:
            began = record.waiting_on not in (asking.ON_INSTANCE, asking.ON_PAUSE)
            return self._turn_back(uow, record, _cancelled(record), began=began)
        if record.waiting_on == asking.ON_CHILDREN and record.children_left <= 0:
            return self._children_ended(uow, record)
        if record.wake_at is None or record.wake_at > uow.now:
            return []
        if record.deadline_at is not None and record.deadline_at <= uow.now and turnable:
            error = Unreachable("deadline_exceeded", f"not done in time, at {record.step}")
            return self._turn_back(uow, record, error, began=True)
        return self._woken(uow, record)

    def _woken(self, uow: UnitOfWork, record: OperationRecord) -> Ids:
        waiting_on = record.waiting_on or ""
        if waiting_on == asking.ON_PAUSE or self._nobody_holds(uow, record):
            uow.operations.save(
                replace(record, waiting_on=None, wake_at=uow.now + self.settings.grace_s)
            )
            return [record.id]
        if waiting_on.startswith(asking.ON_HOST) or waiting_on == asking.ON_SCHEDULER:
            return self._silent(uow, record)
        uow.operations.save(replace(record, wake_at=uow.now + self.settings.ask_again_s))
        return []

    def _nobody_holds(self, uow: UnitOfWork, record: OperationRecord) -> bool:
        """Say whether an operation that waits for its instance has been forgotten there."""
        if record.waiting_on != asking.ON_INSTANCE or record.instance_id is None:
            return False
        instance = uow.instances.lock(record.instance_id)
        if instance is None or instance.operation_id in (None, record.id):
            return True
        holder = uow.operations.get(instance.operation_id or "")
        if holder is not None and not holder.state.ended:
            return False
        uow.instances.save(replace(instance, operation_id=record.id))
        return True

    def _silent(self, uow: UnitOfWork, record: OperationRecord) -> Ids:
        """An ask went unanswered: give a dead host up, ask a living one again, within its time."""
        host = _host_asked(record, None)
        if host and not host_is_up(uow, host, self.settings.down_after_s):
            error = Unreachable("host_down", f"{host} went down", host=host)
            return self._undone(uow, record) if record.undoing else self._gone(uow, record, error)
        deadline = (record.waiting or {}).get("deadline", 0.0)
        if host and uow.now >= deadline:
            error = Unreachable("host_silent", f"{host} did not answer in time", host=host)
            if record.undoing:
                return self._give_up(uow, record, error)
            return self._failed(uow, record, error, began=True)
        uow.operations.save(asking.ask_again(uow, record, self.settings.ask_again_s))
        tell(uow, record, "asked-again", record.waiting_on or "")
        return []

    def _gone(self, uow: UnitOfWork, record: OperationRecord, error: ConductorError) -> Ids:
        """A host died on us: what may be done without it counts as done."""
        if self._is_past_pivot(record):
            return self._move_on(uow, record, self._load(record))
        return self._failed(uow, record, error, began=True)

    def _children_ended(self, uow: UnitOfWork, record: OperationRecord) -> Ids:
        if record.undoing:
            return self._all_undone(uow, replace(record, waiting_on=None))
        failed = uow.operations.where(
            parent_id=record.id, state=(OperationState.FAILED, OperationState.STUCK)
        )
        cancelled = uow.operations.count(parent_id=record.id, state=OperationState.CANCELLED)
        if record.cancel or (cancelled and not failed):
            reason = record.cancel or f"{cancelled} were cancelled"
            error = Rejected("cancelled", reason).to_json()
            return ending.close(uow, replace(record, error=error), OperationState.CANCELLED, {})
        if failed:
            fault = _fault_of_children([child.error or {} for child in failed])
            return ending.close(uow, replace(record, error=fault), OperationState.FAILED, {})
        return self._move_on(uow, record, self._load(record))

    # -- small things ----------------------------------------------------------------------

    def _step(self, record: OperationRecord) -> Step[Any]:
        definition = self.definitions[record.kind]
        return definition.steps[definition.index(record.step)]

    def _is_past_pivot(self, record: OperationRecord) -> bool:
        return self.definitions[record.kind].past_pivot(record.step)

    def _load(self, record: OperationRecord) -> Any:
        return self.definitions[record.kind].load(record.data)

    def _with_state(self, record: OperationRecord, state: Any) -> OperationRecord:
        return replace(record, data=self.definitions[record.kind].dump(state))


def _error_of(reply: Reply) -> ConductorError:
    if reply.error is not None:
        return error_from_json(reply.error)
    return HostRefused(reply.outcome, f"{reply.sender} answered {reply.outcome}")


def _host_asked(record: OperationRecord, error: ConductorError | None) -> str | None:
    if record.waiting is not None and "host" in record.waiting:
        return str(record.waiting["host"])
    host = error.data.get("host") if error is not None else None
    return str(host) if host else None


def _cancelled(record: OperationRecord) -> Rejected:
    return Rejected("cancelled", record.cancel or "cancelled")


def _defect(step: Step[Any], error: Exception) -> Broken:
    log.error("a step has a defect", step=step.name, exc_info=error)
    return Broken("defect", f"{step.name}: {type(error).__name__}: {error}")


def _unknown_definition(record: OperationRecord) -> Broken:
    version = record.definition_version
    message = f"no definition of {record.kind} version {version}: finish it with the old release"
    return Broken("definition_unknown", message)


def _fault_of_children(errors: list[Json]) -> Json:
    if len(errors) == 1:
        return errors[0]
    first = errors[0].get("message", "")
    return {
        "kind": "NoValidHost",
        "code": "children_failed",
        "message": f"{len(errors)} instances failed, the first because: {first}",
    }
