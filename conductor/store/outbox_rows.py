"""Outgoing messages to rows of the transactional outbox and back."""

from __future__ import annotations

from conductor.store.records import OutboxRow
from models.messages.internal import OutgoingMessage


def outbox_row(outgoing: OutgoingMessage, now: float) -> OutboxRow:
    """Return the outbox row of a message, sent if and only if its transaction commits."""
    return OutboxRow(
        id=outgoing.id,
        created_at=now,
        queue=outgoing.queue,
        task=outgoing.task,
        body=outgoing.body,
        root_id=outgoing.root_id,
        parent_id=outgoing.parent_id,
        shown=outgoing.shown,
    )


def message_of(row: OutboxRow) -> OutgoingMessage:
    """Return the outgoing message of a row, byte for byte the same, its id included."""
    return OutgoingMessage(
        queue=row.queue,
        task=row.task,
        body=row.body,
        id=row.id,
        root_id=row.root_id,
        parent_id=row.parent_id,
        shown=row.shown,
    )
