"""Asks on their way: how a step's question becomes a letter with a token, and is sent again."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from conductor.liveness import host_is_up, is_deaf
from conductor.operations.engine.completion import locked, tell
from conductor.operations.engine.context import Scope
from conductor.operations.engine.definition import (
    AwaitChildren,
    DispatchToHost,
    DispatchToScheduler,
)
from conductor.operations.engine.fences import next_fence, note_removal
from conductor.operations.engine.wait_reasons import ON_CHILDREN, ON_HOST, ON_SCHEDULER
from conductor.store.ports import UnitOfWork
from conductor.store.records import OperationRecord
from models.errors import Broken, Unreachable
from models.lifecycle import OperationState
from models.messages.internal import (
    SCHEDULER,
    SELECT_HOSTS,
    Instruction,
    OutgoingMessage,
    SelectHosts,
    Token,
    instruction_message,
    shown_arguments,
)

DESTROY = "destroy"


def ask(
    scope: Scope,
    record: OperationRecord,
    question: DispatchToHost[Any] | DispatchToScheduler[Any] | AwaitChildren[Any],
) -> tuple[OperationRecord, bool]:
    """Post what a step asks and save the operation as waiting for it.

    Returns the record and whether the ask counts as answered already: its host is down and need
    not be alive for it. Raises `Unreachable` (`host_down`) for a host that is down and must be.
    """
    if isinstance(question, AwaitChildren):
        waiting = replace(record, waiting_on=ON_CHILDREN, state=OperationState.RUNNING)
        left = record.children_left > 0
        scope.save(waiting, scope.settings.ask_again_s if left else scope.settings.grace_s)
        return waiting, False
    if isinstance(question, DispatchToScheduler):
        return _ask_scheduler(scope, record, question), False
    up = host_is_up(scope.uow, question.host, scope.settings.down_after_s)
    if not up and not question.done_if_down:
        host = question.host
        raise Unreachable("host_down", f"{host} is down", host=host)
    if up and scope.may_leave(record) and not question.done_if_down:
        refuse_deaf(scope, question.host)
    return _ask_host(scope, record, question), not up


def refuse_deaf(scope: Scope, host: str) -> None:
    """Raise `Unreachable` (`host_deaf`) for a host that is known to hear nothing."""
    known = scope.uow.hosts.get(host)
    if known is not None and is_deaf(known):
        raise Unreachable("host_deaf", f"{host} is {known.degraded}", host=host)


def dispatch_again(scope: Scope, record: OperationRecord) -> OperationRecord:
    """Post the same letter once more, to the letter: the same token finds the same answer."""
    if record.waiting is None:
        raise Broken("nothing_asked", f"operation {record.id} waits for an ask it does not hold")
    scope.uow.post(OutgoingMessage(**record.waiting["outgoing"]))
    asked = record.waiting.get("asked", 1) + 1
    again_at = scope.uow.now + scope.settings.ask_again_s * min(2**asked, 32)
    again = replace(record, waiting={**record.waiting, "asked": asked, "again_at": again_at})
    look_again(scope, again)
    return again


def look_again(scope: Scope, record: OperationRecord) -> None:
    """Save an operation whose ask stays out, and look at it at the first of what may come.

    That is its time to be asked again, the end of its time, or a host that has gone down: it is
    sent more and more seldom, but what else ends the wait is seen as soon as ever.
    """
    waiting = record.waiting or {}
    times = [waiting[name] for name in ("again_at", "deadline") if name in waiting]
    wait_s = min([scope.settings.down_after_s, *(at - scope.uow.now for at in times)])
    scope.save(record, max(0.0, wait_s))


def children_to_start(scope: Scope, record: OperationRecord) -> list[str]:
    """Return the children that an operation which now awaits them has just let go.

    Where all have ended before, it is the operation's own turn to look how they ended. They are
    found soon should whoever lets them go die: until now their parent stood for them.
    """
    if record.waiting_on != ON_CHILDREN:
        return []
    if record.children_left <= 0:
        return [record.id]
    ready = scope.uow.operations.where(parent_id=record.id, waiting_on=None, ended_at=None)
    soon = scope.uow.now + scope.settings.grace_s
    for child in ready:
        if child.wake_at is None or child.wake_at > soon:
            _wake_by(scope.uow, child.id, soon)
    return [child.id for child in ready]


def _wake_by(uow: UnitOfWork, operation_id: str, at: float) -> None:
    record = locked(uow, operation_id)
    if record is not None and not record.state.ended and record.waiting_on is None:
        uow.operations.save(replace(record, wake_at=at, updated_at=uow.now))


def _ask_host(scope: Scope, record: OperationRecord, ask: DispatchToHost[Any]) -> OperationRecord:
    """Post an instruction; its fence grows with each, and hosts refuse what is older."""
    uow = scope.uow
    if ask.instance_id is None:
        # Hosts work and fence by instance; the operation stands for one, overtaken by no other.
        subject, fence = record.id, record.sequence + 1
    else:
        subject, fence = ask.instance_id, next_fence(uow, ask.instance_id)
        if ask.verb == DESTROY:
            note_removal(uow, subject, ask.host, record.id, fence)
    serving = uow.registrations.get(ask.host)
    instruction = Instruction(
        token=_token(record, fence),
        instance_id=subject,
        verb=ask.verb,
        args=dict(ask.args),
        host=ask.host,
        worker_id=serving.worker_id if serving else None,
    )
    outgoing = instruction_message(ask.host, instruction, record.root_id or record.id)
    if ask.instance_id is None:
        shown = shown_arguments(host=ask.host, step=record.step, attempt=record.attempt)
        outgoing = replace(outgoing, shown=shown)
    waiting = {"host": ask.host, "verb": ask.verb, "done_if_down": ask.done_if_down}
    tell(uow, record, record.step, f"{ask.verb} on {ask.host}")
    return _wait(scope, record, outgoing, {**waiting, "timeout_s": ask.timeout_s})


def _ask_scheduler(
    scope: Scope, record: OperationRecord, ask: DispatchToScheduler[Any]
) -> OperationRecord:
    token = _token(record, fence=0)
    body = SelectHosts(
        token=token, host_requests=ask.host_requests, alternates=ask.alternates, ignored=ask.ignored
    )
    outgoing = OutgoingMessage(
        queue=SCHEDULER,
        task=SELECT_HOSTS,
        body=body.to_json(),
        id=token.message_id,
        root_id=record.root_id or record.id,
        parent_id=record.id,
        shown=shown_arguments(
            instances=len(ask.host_requests),
            instance_id=ask.host_requests[0].instance_id if len(ask.host_requests) == 1 else None,
            attempt=record.attempt,
            not_on=", ".join(ask.ignored),
        ),
    )
    tell(scope.uow, record, record.step, f"asked the scheduler for {len(ask.host_requests)}")
    return _wait(scope, record, outgoing, {"verb": SELECT_HOSTS, "timeout_s": ask.timeout_s})


def _token(record: OperationRecord, fence: int) -> Token:
    return Token(
        operation_id=record.id,
        step=record.step,
        attempt=record.attempt,
        sequence=record.sequence + 1,
        fence=fence,
        root_id=record.root_id if record.root_id != record.id else None,
    )


def _wait(
    scope: Scope, record: OperationRecord, outgoing: OutgoingMessage, waiting: dict[str, Any]
) -> OperationRecord:
    """Post an ask and save its operation; the answer is awaited for `timeout_s` and no longer."""
    now = scope.uow.now
    scope.uow.post(outgoing)
    state = OperationState.SCHEDULING if outgoing.queue == SCHEDULER else OperationState.DISPATCHED
    times = {"again_at": now + scope.settings.ask_again_s, "deadline": now + waiting["timeout_s"]}
    asked = replace(
        record,
        state=OperationState.UNDOING if record.undoing else state,
        sequence=record.sequence + 1,
        waiting={**waiting, **times, "outgoing": asdict(outgoing)},
        waiting_on=ON_HOST + waiting["host"] if "host" in waiting else ON_SCHEDULER,
        asked_at=now,
    )
    look_again(scope, asked)
    return asked
