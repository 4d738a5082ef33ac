"""Letters to rows of the outbox and back."""

from __future__ import annotations

from conductor.store.records import OutboxRow
from models.messages.letters import Letter


def outbox_row(letter: Letter, now: float) -> OutboxRow:
    """Return the row that promises a letter."""
    return OutboxRow(
        id=letter.id,
        created_at=now,
        queue=letter.queue,
        task=letter.task,
        body=letter.body,
        root_id=letter.root_id,
        parent_id=letter.parent_id,
        shown=letter.shown,
    )


def letter_of(row: OutboxRow) -> Letter:
    """Return the letter that a row promised: the same to the letter, its id included."""
    return Letter(
        queue=row.queue,
        task=row.task,
        body=row.body,
        id=row.id,
        root_id=row.root_id,
        parent_id=row.parent_id,
        shown=row.shown,
    )
