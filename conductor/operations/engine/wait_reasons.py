"""What an operation can wait for: the values of `OperationRecord.waiting_on`."""

from __future__ import annotations

from typing import Final

from conductor.store.records import ASKS, WAITS_ON_HOST, WAITS_ON_SCHEDULER, OperationRecord
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
    """Say whether an answer of the scheduler or of a host is awaited."""
    return waiting_on is not None and waiting_on.startswith(ASKS)


def asked_of(waiting_on: str | None, sender: str) -> bool:
    """Say whether it is the answer of `sender`, a host or the scheduler, that is awaited."""
    expected = ON_SCHEDULER if sender == SCHEDULER else ON_HOST + sender
    return waiting_on == expected


def awaits(record: OperationRecord | None, token: Token, sender: str) -> bool:
    """Say whether `sender` has been asked under this token, and has not answered yet."""
    if record is None or record.sequence != token.sequence:
        return False
    return asked_of(record.waiting_on, sender)
