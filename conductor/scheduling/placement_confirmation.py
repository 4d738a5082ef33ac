"""Claims that a Placement server has to have too: made here, written there, else taken back.

Every part may happen twice. A process that dies between claim and answer leaves decisions: who
gets the message again finds them, and goes on with the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from conductor.placement.local.host_claims import release_claim, release_target
from conductor.placement.providers import OF_THE_SERVER
from conductor.scheduling.request.select_hosts import decided, is_current
from conductor.scheduling.request.selection_reply import reply_message
from conductor.store.ports import Store, UnitOfWork
from conductor.store.records import Decision
from models.errors import Broken, ConductorError, NoValidHost, Rejected
from models.lifecycle import OperationState, TaskState
from models.messages.internal import HostRequest, OutgoingMessage, SelectHosts

if TYPE_CHECKING:
    from conductor.placement.sync.mirror import PlacementMirror

Decide = Callable[[SelectHosts, str], list[OutgoingMessage]]

_log = structlog.get_logger(__name__)


def vouched(
    message: SelectHosts, store: Store, mirror: PlacementMirror, decide: Decide
) -> list[OutgoingMessage]:
    """Return the answer to an ask once the server has what was claimed; raise as `decide` does.

    `Unreachable` where the server does not answer: the claim stays, and the message comes again.
    Whatever it refuses for good is taken back at once. Ends, since each host that it refuses is
    left out of the next decision.
    """
    asked, told = message, ""
    while True:
        outgoing_messages = decide(asked, told)
        request_id, before = _claimed(store, asked)
        if outgoing_messages or not before:
            return outgoing_messages
        try:
            mirror.claim(sorted(_consumers(asked, before)), request_id)
        except (NoValidHost, Rejected, Broken) as error:
            told = f"the Placement server refused: {error.message}"
            _log.warning("claim refused", operation_id=asked.token.operation_id, reason=told)
            asked = _taken_back(store, asked, before, error)
        else:
            return _answered(store, asked, before)


def _claimed(store: Store, message: SelectHosts) -> tuple[str, list[Decision]]:
    """Return the id of the request, and what was decided while it still waits."""
    with store.read() as uow:
        operation = uow.operations.get(message.token.operation_id)
        if operation is None or not is_current(operation, message):
            return "", []
        return operation.request_id, decided(uow, message)


def _answered(
    store: Store, message: SelectHosts, decisions: Sequence[Decision]
) -> list[OutgoingMessage]:
    with store.begin() as uow:
        operation = uow.operations.lock(message.token.operation_id)
        if is_current(operation, message):
            uow.post(reply_message(message, decisions))
        return list(uow.posted)


def _consumers(message: SelectHosts, decisions: Iterable[Decision]) -> set[str]:
    """Return who holds what was claimed: the instances, and of moves the migrations beside them."""
    placed = {decision.instance_id for decision in decisions if decision.host is not None}
    moves = {
        w.migration_id for w in message.host_requests if w.migration_id and w.instance_id in placed
    }
    return placed | moves


def _taken_back(
    store: Store, message: SelectHosts, decisions: Sequence[Decision], error: ConductorError
) -> SelectHosts:
    """Release what was claimed, and return the ask without the hosts that were refused."""
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
        hosts = _refused(uow, decisions, error)
    ignored = tuple(dict.fromkeys((*message.ignored, *hosts)))
    return message.model_copy(update={"ignored": ignored})


def _refused(
    uow: UnitOfWork, decisions: Iterable[Decision], error: ConductorError
) -> Sequence[str]:
    """Return the hosts that a refusal is about: the one that it names, all chosen, or every one."""
    if error.code in OF_THE_SERVER:
        return sorted(host.name for host in uow.hosts.where())
    chosen = [decision.host for decision in decisions if decision.host is not None]
    named = error.data.get("host")
    return [named] if named in chosen else chosen


def _release(uow: UnitOfWork, host_request: HostRequest) -> None:
    migration = uow.migrations.get(host_request.migration_id) if host_request.migration_id else None
    if migration is not None:
        uow.migrations.save(release_target(uow, migration))
        return
    instance = uow.instances.get(host_request.instance_id)
    if instance is not None:
        spawning = instance.task_state is TaskState.SPAWNING
        state = TaskState.SCHEDULING if spawning else instance.task_state
        uow.instances.save(replace(release_claim(uow, instance), task_state=state))
