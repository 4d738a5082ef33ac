"""The engine: one call, one transition, one transaction.

A living operation is in one of two situations, and everything is an arrow between them:

    ready     `waiting_on` is None: `advance` runs the step (or its undo) that `step` names;
    waiting   something is out: a reply with the newest sequence, or the clock, moves it on.

`wake_at` is set in both, so that the reaper finds whatever a dead process left behind. Nothing
here sends, sleeps or reads a clock: the unit of work carries the time and the outbox. The ways
an operation goes are one module each: `forward`, `turning` (back), `waiting` and `ending`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from conductor.operations.engine import completion, execution, rollback, wakeup
from conductor.operations.engine.context import EngineSettings, Ids, TransitionContext
from conductor.operations.engine.definition import Operation
from conductor.operations.engine.wait_reasons import awaits, is_dispatch, waits_for
from conductor.store import OperationRecord, UnitOfWork
from models.errors import Broken, ConductorError, HostRefused, Rejected, error_from_json
from models.messages.internal import Reply
from models.messages.versions import VERSION_UNSUPPORTED
from models.secrets import shown


class Engine:
    """Moves operations by their definitions. Every method returns which can go on at once."""

    def __init__(
        self, definitions: Mapping[str, Operation[Any]], settings: EngineSettings | None = None
    ) -> None:
        self.definitions = definitions
        self.settings = settings or EngineSettings()

    def advance(self, uow: UnitOfWork, operation_id: str) -> Ids:
        """Make one transition if one is due; do nothing otherwise: may be called at any time."""
        record = completion.locked(uow, operation_id)
        if record is None or record.state.ended:
            return []
        context = self._context(uow)
        definition = self.definitions.get(record.kind)
        if definition is None or definition.version != record.definition_version:
            return rollback.end_stuck(context, record, _unknown_definition(record))
        if record.waiting_on is not None:
            return wakeup.look(context, record)
        if record.undoing:
            return rollback.undo(context, record)
        if record.cancel and not definition.past_pivot(record.step):
            return rollback.roll_back(context, record, rollback.cancelled(record), began=False)
        late = context.deadline_error(record)
        if late is not None:
            return rollback.roll_back(context, record, late, began=False)
        return execution.run_step(context, record)

    def expects(self, uow: UnitOfWork, reply: Reply) -> bool:
        """Lock the operation of a reply, as `reply` does, and say whether it waits for it."""
        record = completion.locked(uow, reply.token.operation_id)
        return awaits(record, reply.token, reply.sender)

    def reply(self, uow: UnitOfWork, reply: Reply) -> Ids:
        """Apply the reply to the dispatch that is out; a reply to an older one changes nothing.

        Raises `Rejected` (`reply_refused`) for another sender or another step than dispatched: a
        sequence is a small number, and ids of operations follow from those of requests.

        A reply that comes again says that the process which handled it first may be dead: an
        operation that is ready goes on at once then, not only when the reaper finds it.
        """
        record = completion.locked(uow, reply.token.operation_id)
        if record is None or record.state.ended:
            return []
        if not is_dispatch(record.waiting_on) or record.sequence != reply.token.sequence:
            return [record.id] if record.waiting_on is None else []
        _refuse_stranger(record, reply)
        context = self._context(uow)
        if record.undoing:
            # A host that has seen something newer (`stale`) holds nothing of this any more.
            if reply.outcome in ("done", "stale"):
                return rollback.after_undo(context, record)
            return rollback.pause(context, record, _error_of(reply))
        if reply.outcome == "stale":
            return rollback.end_stuck(context, record, _outdated(reply))
        if reply.outcome != "done":
            return rollback.handle_failure(
                context, record, _error_of(reply), began=_may_have_begun(reply)
            )
        late = context.deadline_error(record)
        if late is not None:
            return rollback.roll_back(context, record, late, began=True)
        return execution.apply_reply(context, record, reply.result)

    def undelivered(
        self,
        uow: UnitOfWork,
        operation_id: str,
        message_id: str,
        error: ConductorError,
        *,
        began: bool,
    ) -> Ids:
        """End a dispatch that no reply will come to; any but the one that is out is left alone.

        `began` says that half of it may have been done all the same. A host that is too old for
        an undo is not degraded for it: what it still has shows in its next report.
        """
        record = completion.locked(uow, operation_id)
        if record is None or record.state.ended or not is_dispatch(record.waiting_on):
            return []
        if ((record.waiting or {}).get("outgoing") or {}).get("id") != message_id:
            return []
        context = self._context(uow)
        if not record.undoing:
            return rollback.handle_failure(context, record, error, began=began)
        if error.code == VERSION_UNSUPPORTED:
            completion.add_event(uow, record, "undo-refused", error.message)
            return rollback.after_undo(context, record)
        return rollback.pause(context, record, error)

    def cancel(self, uow: UnitOfWork, operation_id: str, reason: str) -> Ids:
        """Mark an operation and its children to be rolled back from their next boundary."""
        record = completion.locked(uow, operation_id)
        if record is None or record.state.ended or record.cancel is not None:
            return []
        marked = replace(record, cancel=reason, updated_at=uow.now)
        uow.operations.save(marked)
        completion.add_event(uow, marked, "cancel", reason)
        children = uow.operations.where(parent_id=record.id, ended_at=None)
        return [record.id, *(id_ for c in children for id_ in self.cancel(uow, c.id, reason))]

    def _context(self, uow: UnitOfWork) -> TransitionContext:
        return TransitionContext(self.definitions, self.settings, uow)


def _may_have_begun(reply: Reply) -> bool:
    """Say whether something may be half done: only who answers `refused` has changed nothing."""
    return reply.outcome != "refused"


def _refuse_stranger(record: OperationRecord, reply: Reply) -> None:
    token = reply.token
    if not waits_for(record.waiting_on, reply.sender):
        message = f"sender is {shown(reply.sender)}: operation {record.id} did not ask it"
        raise Rejected("reply_refused", message, key="sender")
    if (token.step, token.attempt) != (record.step, record.attempt):
        message = f"token is of {shown(token.step)}, attempt {token.attempt}: that was not asked"
        raise Rejected("reply_refused", message, key="token")


def _outdated(reply: Reply) -> Broken:
    """Return why nothing may go on: its host has obeyed what this database does not know of.

    To ask again under a higher fence would be obeyed, and might remove a guest that somebody has
    made since: an older copy of the database was restored, or two are in use.
    """
    message = (
        f"{reply.sender} has obeyed something newer for this instance than this database knows: "
        f"was an older copy restored?"
    )
    return Broken("database_outdated", message, host=reply.sender)


def _error_of(reply: Reply) -> ConductorError:
    if reply.error is not None:
        return error_from_json(reply.error)
    return HostRefused(reply.outcome, f"{reply.sender} answered {reply.outcome}")


def _unknown_definition(record: OperationRecord) -> Broken:
    version = record.definition_version
    message = f"no definition of {record.kind} version {version}: finish it with its own release"
    return Broken("definition_unknown", message)
