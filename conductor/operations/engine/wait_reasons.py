"""What an operation can wait for: the values of `OperationRecord.waiting_on`."""

from __future__ import annotations

from typing import Final

from conductor.store import DISPATCHES, WAITS_ON_HOST, WAITS_ON_SCHEDULER, OperationRecord
from models.messages.internal import SCHEDULER, Token

ON_SCHEDULER: Final = WAITS_ON_SCHEDULER
ON_HOST: Final = WAITS_ON_HOST
"""Followed by the name of the host."""
ON_CHILDREN: Final = "children"
ON_PARENT: Final = "parent"
ON_INSTANCE: Final = "instance"
"""Another operation runs on the instance; this one's turn comes when that ends."""
ON_PAUSE: Final = "pause"


def is_dispatch(waiting_on: str | None) -> bool:
    """Say whether a reply of the scheduler or of a host is expected."""
    return waiting_on is not None and waiting_on.startswith(DISPATCHES)


def waits_for(waiting_on: str | None, sender: str) -> bool:
    """Say whether a reply of `sender`, a host or the scheduler, is expected."""
    expected = ON_SCHEDULER if sender == SCHEDULER else ON_HOST + sender
    return waiting_on == expected


def awaits(record: OperationRecord | None, token: Token, sender: str) -> bool:
    """Say whether the dispatch with this token went to `sender`, and has no reply yet."""
    if record is None or record.sequence != token.sequence:
        return False
    return waits_for(record.waiting_on, sender)
