"""Publishes operation statuses: an observer of transactions, called after they are committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from conductor.operation_status import OperationStatus, operation_status_of
from conductor.operations.engine.completion import locked
from conductor.operations.engine.wait_reasons import is_dispatch
from conductor.store import OperationRecord, Store, UnitOfWork
from models.lifecycle import OperationState

ENDS_SINCE_S, ENDS_MOST = 600.0, 5_000
"""How far back, and how many at most, ends are looked at again."""
ENDS_SETTLED_S = 5.0
"""Whoever wrote a younger end may just be publishing it."""
Publish: TypeAlias = Callable[[OperationStatus], None]
Unpublished: TypeAlias = Callable[[Sequence[str]], Sequence[str]]


class StatusObserver:
    """Publishes the status in which one transaction leaves an operation.

    `claimed`: the transaction takes the scheduler's selection in. The scheduler has written the
    claim before and publishes nothing itself. With `unanswered`, a dispatch that is out no longer
    afterwards was given up; without it, it may have been answered.
    """

    def __init__(
        self,
        publish: Publish,
        operation_id: str,
        *,
        claimed: bool = False,
        unanswered: bool = False,
    ) -> None:
        self._publish = publish
        self._operation_id = operation_id
        self._claimed = claimed
        self._unanswered = unanswered
        self._before: OperationRecord | None = None
        self._status: OperationStatus | None = None

    def before(self, uow: UnitOfWork) -> None:
        """Keep which dispatch is out."""
        # The engine locks it too, in the same order, so this costs no statement more.
        self._before = locked(uow, self._operation_id) if self._unanswered else None

    def after(self, uow: UnitOfWork) -> None:
        """Read the status as it will be committed."""
        status = operation_status_of(uow, self._operation_id)
        self._status = status and _with_given_up(status, self._before)

    def committed(self) -> None:
        """Publish it."""
        status = self._status
        if status is None:
            return
        if self._claimed and status.record.state is OperationState.RUNNING:
            claim = replace(status.record, state=OperationState.CLAIMED)
            self._publish(replace(status, record=claim))
        self._publish(status)


def _with_given_up(status: OperationStatus, before: OperationRecord | None) -> OperationStatus:
    if before is None or before.waiting is None or not is_dispatch(before.waiting_on):
        return status
    outgoing = before.waiting["outgoing"]
    after = status.record.waiting
    still_out = after is not None and after["outgoing"]["id"] == outgoing["id"]
    return status if still_out else replace(status, given_up=outgoing)


def publish_ends(store: Store, publish: Publish, unpublished: Unpublished) -> int:
    """Publish ends whose conductor died between their commit and publishing; return how many.

    `unpublished` returns those of the ids of which no end is to be seen. Once a conductor is up
    again whoever waits for a result gets it, and never another one instead.
    """
    with store.read() as uow:
        lately = uow.operations.ended_since(uow.now - ENDS_SINCE_S, ENDS_MOST)
    published = 0
    for operation_id in unpublished(lately):
        with store.read() as uow:
            status = operation_status_of(uow, operation_id)
        if status is not None and status.at - (status.record.ended_at or 0.0) >= ENDS_SETTLED_S:
            publish(status)
            published += 1
    return published
