"""Notifications: one when an operation on an instance begins, one at its end."""

from __future__ import annotations

from typing import Literal

from conductor.store import Instance, OperationRecord, UnitOfWork
from models.lifecycle import OperationState
from models.messages.notifications import (
    NotifiedError,
    NotifiedInstance,
    OperationNotified,
    notification_message,
)


def notify(uow: UnitOfWork, record: OperationRecord, instance: Instance | None) -> None:
    """Post the notification of the state that an operation has just reached.

    One without an instance, such as the request behind many builds, has none: its children have.
    """
    if record.instance_id is None:
        return
    error = record.error if record.state.ended else None
    notice = OperationNotified(
        at=uow.now,
        event=_event(record.state),
        operation_id=record.id,
        kind=record.kind,
        state=record.state,
        project_id=record.project_id,
        user_id=record.user_id,
        request_id=record.request_id,
        instance=None if instance is None else _seen(instance),
        error=None
        if error is None
        else NotifiedError(code=str(error.get("code", "")), message=str(error.get("message", ""))),
    )
    uow.post(notification_message(notice))


def _event(state: OperationState) -> Literal["start", "end", "error"]:
    if not state.ended:
        return "start"
    return "end" if state is OperationState.SUCCEEDED else "error"


def _seen(instance: Instance) -> NotifiedInstance:
    return NotifiedInstance(
        id=instance.id, name=instance.name, state=instance.state, host=instance.host
    )
