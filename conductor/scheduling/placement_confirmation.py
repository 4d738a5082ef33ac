"""Two-phase claims where a Placement server is configured: claimed here, confirmed there.

A claim that the server refuses is released. Every step is idempotent: a process that dies between
claim and reply leaves decisions, and whoever gets the redelivered message continues from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from conductor.placement.local.instance_allocations import release_instance, release_target
from conductor.placement.providers import OF_THE_SERVER
from conductor.scheduling.request.select_hosts import decisions_of, is_current
from conductor.scheduling.request.selection_reply import reply_message
from conductor.store import Decision, Store, UnitOfWork
from models.errors import Broken, ConductorError, NoValidHost, Rejected
from models.lifecycle import OperationState, TaskState
from models.messages.internal import HostRequest, OutgoingMessage, SelectHosts

if TYPE_CHECKING:
    from conductor.placement.sync.mirror import PlacementMirror

Decide = Callable[[SelectHosts, str], list[OutgoingMessage]]

_log = structlog.get_logger(__name__)


def confirm_claim(
    message: SelectHosts, store: Store, mirror: PlacementMirror, decide: Decide
) -> list[OutgoingMessage]:
    """Return the reply to `message` once the server has the claim; raise as `decide` does.

    Raises `Unreachable` where the server does not answer: the claim stays, and the message is
    delivered again. What the server refuses for good is released at once. Terminates, since each
    refused host is ignored by the next decision.
    """
    refusal = ""
    while True:
        outgoing_messages = decide(message, refusal)
        request_id, decisions = _unconfirmed(store, message)
        if outgoing_messages or not decisions:
            return outgoing_messages
        try:
            mirror.claim(sorted(_consumers(message, decisions)), request_id)
        except (NoValidHost, Rejected, Broken) as error:
            refusal = f"the Placement server refused: {error.message}"
            _log.warning("claim refused", operation_id=message.token.operation_id, reason=refusal)
            message = _release_claim(store, message, decisions, error)
        else:
            return _post_reply(store, message, decisions)


def _unconfirmed(store: Store, message: SelectHosts) -> tuple[str, list[Decision]]:
    """Return the request's id and the decisions on a message that is still current."""
    with store.read() as uow:
        operation = uow.operations.get(message.token.operation_id)
        if operation is None or not is_current(operation, message):
            return "", []
        return operation.request_id, decisions_of(uow, message)


def _post_reply(
    store: Store, message: SelectHosts, decisions: Sequence[Decision]
) -> list[OutgoingMessage]:
    with store.begin() as uow:
        operation = uow.operations.lock(message.token.operation_id)
        if is_current(operation, message):
            uow.post(reply_message(message, decisions))
        return list(uow.posted)


def _consumers(message: SelectHosts, decisions: Iterable[Decision]) -> set[str]:
    """Return the consumers of the claim: the instances, and of moves their migrations too."""
    placed = {decision.instance_id for decision in decisions if decision.host is not None}
    moves = {
        request.migration_id
        for request in message.host_requests
        if request.migration_id and request.instance_id in placed
    }
    return placed | moves


def _release_claim(
    store: Store, message: SelectHosts, decisions: Sequence[Decision], error: ConductorError
) -> SelectHosts:
    """Release the claim; return the message with the refused hosts among the ignored ones."""
    with store.begin() as uow:
        uow.instances.lock_many(host_request.instance_id for host_request in message.host_requests)
        operation = uow.operations.lock(message.token.operation_id)
        if operation is None or not is_current(operation, message):
            return message
        for host_request in message.host_requests:
            _release(uow, host_request)
        for decision in decisions:
            uow.decisions.drop(decision.id)
        uow.operations.save(replace(operation, state=OperationState.SCHEDULING))
        hosts = _refused_hosts(uow, decisions, error)
    ignored = tuple(dict.fromkeys((*message.ignored, *hosts)))
    return message.model_copy(update={"ignored": ignored})


def _refused_hosts(
    uow: UnitOfWork, decisions: Iterable[Decision], error: ConductorError
) -> Sequence[str]:
    """Return the hosts that a refusal concerns: the one it names, all selected, or every host."""
    if error.code in OF_THE_SERVER:
        return sorted(host.name for host in uow.hosts.where())
    selected = [decision.host for decision in decisions if decision.host is not None]
    named = error.data.get("host")
    return [named] if named in selected else selected


def _release(uow: UnitOfWork, host_request: HostRequest) -> None:
    migration = uow.migrations.get(host_request.migration_id) if host_request.migration_id else None
    if migration is not None:
        uow.migrations.save(release_target(uow, migration))
        return
    instance = uow.instances.get(host_request.instance_id)
    if instance is not None:
        spawning = instance.task_state is TaskState.SPAWNING
        state = TaskState.SCHEDULING if spawning else instance.task_state
        uow.instances.save(replace(release_instance(uow, instance), task_state=state))
