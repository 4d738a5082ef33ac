"""Dispatch: posts what a step requests as a message with a token, and posts it again unchanged."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from conductor.liveness import host_is_up, is_deaf
from conductor.operations.engine.completion import add_event, locked
from conductor.operations.engine.context import TransitionContext
from conductor.operations.engine.definition import (
    AwaitChildren,
    DispatchToHost,
    DispatchToScheduler,
)
from conductor.operations.engine.fences import next_fence, note_removal
from conductor.operations.engine.wait_reasons import ON_CHILDREN, ON_HOST, ON_SCHEDULER
from conductor.store import OperationRecord, UnitOfWork, identity_of
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


def dispatch_step(
    context: TransitionContext,
    record: OperationRecord,
    request: DispatchToHost[Any] | DispatchToScheduler[Any] | AwaitChildren[Any],
) -> tuple[OperationRecord, bool]:
    """Post what a step requests and save the operation as waiting for it.

    Returns the record and whether the request counts as done already: its host is down and need
    not be alive for it. Raises `Unreachable` (`host_down`) for a host that is down and must be.
    """
    if isinstance(request, AwaitChildren):
        waiting = replace(record, waiting_on=ON_CHILDREN, state=OperationState.RUNNING)
        left = record.children_left > 0
        context.save(waiting, context.settings.ask_again_s if left else context.settings.grace_s)
        return waiting, False
    if isinstance(request, DispatchToScheduler):
        return _dispatch_to_scheduler(context, record, request), False
    up = host_is_up(context.uow, request.host, context.settings.down_after_s)
    if not up and not request.done_if_down:
        host = request.host
        raise Unreachable("host_down", f"{host} is down", host=host)
    if up and context.can_go_elsewhere(record) and not request.done_if_down:
        refuse_deaf(context, request.host)
    return _dispatch_to_host(context, record, request), not up


def refuse_deaf(context: TransitionContext, host: str) -> None:
    """Raise `Unreachable` (`host_deaf`) for a host that is known not to read its queue."""
    known = context.uow.hosts.get(host)
    if known is not None and is_deaf(known):
        raise Unreachable("host_deaf", f"{host} is {known.degraded}", host=host)


def dispatch_again(context: TransitionContext, record: OperationRecord) -> OperationRecord:
    """Post the same message once more, unchanged: its token finds the reply that was given."""
    if record.waiting is None:
        raise Broken("nothing_asked", f"operation {record.id} waits for a dispatch and holds none")
    context.uow.post(OutgoingMessage(**record.waiting["outgoing"]))
    times = record.waiting.get("asked", 1) + 1
    again_at = context.uow.now + context.settings.ask_again_s * min(2**times, 32)
    again = replace(record, waiting={**record.waiting, "asked": times, "again_at": again_at})
    look_again(context, again)
    return again


def look_again(context: TransitionContext, record: OperationRecord) -> None:
    """Save an operation whose dispatch stays out, to be looked at when the first of these is due.

    They are the next redelivery, the deadline, and the time after which a silent host is down.
    Redeliveries become rarer (exponential backoff); the other two are seen as soon as before.
    """
    waiting = record.waiting or {}
    times = [waiting[name] for name in ("again_at", "deadline") if name in waiting]
    wait_s = min([context.settings.down_after_s, *(at - context.uow.now for at in times)])
    context.save(record, max(0.0, wait_s))


def children_to_start(context: TransitionContext, record: OperationRecord) -> list[str]:
    """Return the children that can go on now that their parent awaits them.

    Where all have ended already, that is the parent itself. Each is due soon for the reaper, in
    case this process dies before it moves them: until now only their parent was due.
    """
    if record.waiting_on != ON_CHILDREN:
        return []
    if record.children_left <= 0:
        return [record.id]
    ready = context.uow.operations.where(parent_id=record.id, waiting_on=None, ended_at=None)
    soon = context.uow.now + context.settings.grace_s
    for child in ready:
        if child.wake_at is None or child.wake_at > soon:
            _wake_by(context.uow, child.id, soon)
    return [child.id for child in ready]


def _wake_by(uow: UnitOfWork, operation_id: str, at: float) -> None:
    record = locked(uow, operation_id)
    if record is not None and not record.state.ended and record.waiting_on is None:
        uow.operations.save(replace(record, wake_at=at, updated_at=uow.now))


def _dispatch_to_host(
    context: TransitionContext, record: OperationRecord, request: DispatchToHost[Any]
) -> OperationRecord:
    """Post an instruction; its fence grows with each, and hosts refuse what is older."""
    uow = context.uow
    if request.instance_id is None:
        # Hosts order and fence by instance: without one, the operation takes its place.
        subject, fence = record.id, record.sequence + 1
    else:
        subject = request.instance_id
        fence = request.fence or next_fence(uow, request.instance_id)
        if request.verb == DESTROY:
            note_removal(uow, subject, request.host, record.id, fence)
    serving = uow.registrations.get(request.host)
    instruction = Instruction(
        token=_token(record, fence),
        instance_id=subject,
        verb=request.verb,
        args=dict(request.args),
        host=request.host,
        worker_id=serving.worker_id if serving else None,
        database=identity_of(uow).id,
    )
    outgoing = instruction_message(request.host, instruction, record.root_id or record.id)
    if request.instance_id is None:
        shown = shown_arguments(host=request.host, step=record.step, attempt=record.attempt)
        outgoing = replace(outgoing, shown=shown)
    waiting = {"host": request.host, "verb": request.verb, "done_if_down": request.done_if_down}
    add_event(uow, record, record.step, f"{request.verb} on {request.host}")
    return _post_and_wait(context, record, outgoing, {**waiting, "timeout_s": request.timeout_s})


def _dispatch_to_scheduler(
    context: TransitionContext, record: OperationRecord, request: DispatchToScheduler[Any]
) -> OperationRecord:
    token = _token(record, fence=0)
    body = SelectHosts(
        token=token,
        host_requests=request.host_requests,
        alternates=request.alternates,
        ignored=request.ignored,
    )
    outgoing = OutgoingMessage(
        queue=SCHEDULER,
        task=SELECT_HOSTS,
        body=body.to_json(),
        id=token.message_id,
        root_id=record.root_id or record.id,
        parent_id=record.id,
        shown=shown_arguments(
            instances=len(request.host_requests),
            instance_id=request.host_requests[0].instance_id
            if len(request.host_requests) == 1
            else None,
            attempt=record.attempt,
            not_on=", ".join(request.ignored),
        ),
    )
    add_event(
        context.uow, record, record.step, f"asked the scheduler for {len(request.host_requests)}"
    )
    return _post_and_wait(
        context, record, outgoing, {"verb": SELECT_HOSTS, "timeout_s": request.timeout_s}
    )


def _token(record: OperationRecord, fence: int) -> Token:
    return Token(
        operation_id=record.id,
        step=record.step,
        attempt=record.attempt,
        sequence=record.sequence + 1,
        fence=fence,
        root_id=record.root_id if record.root_id != record.id else None,
    )


def _post_and_wait(
    context: TransitionContext,
    record: OperationRecord,
    outgoing: OutgoingMessage,
    waiting: dict[str, Any],
) -> OperationRecord:
    """Post a message and save its operation as waiting for the reply, at most `timeout_s`."""
    now = context.uow.now
    context.uow.post(outgoing)
    state = OperationState.SCHEDULING if outgoing.queue == SCHEDULER else OperationState.DISPATCHED
    times = {"again_at": now + context.settings.ask_again_s, "deadline": now + waiting["timeout_s"]}
    dispatched = replace(
        record,
        state=OperationState.UNDOING if record.undoing else state,
        sequence=record.sequence + 1,
        waiting={**waiting, **times, "outgoing": asdict(outgoing)},
        waiting_on=ON_HOST + waiting["host"] if "host" in waiting else ON_SCHEDULER,
        asked_at=now,
    )
    look_again(context, dispatched)
    return dispatched
