"""Moves operations whose time has come; one that cannot be moved hides none of the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import structlog

from conductor.operations.engine.completion import locked
from conductor.store import Store, UnitOfWork
from conductor.transactions import Transactions
from models.errors import ConductorError, Conflict, Unreachable

log = structlog.get_logger(__name__)

OVERDUE_BATCH = 200
PUT_OFF_S = 60.0
"""How long an operation that cannot be moved is left alone."""

_AWAY = ("database_unreachable", "database_busy")


def reap(store: Store, transactions: Transactions, drive: Callable[[list[str]], None]) -> int:
    """Drive every operation whose time has come; return how many were due.

    What is in the way of one (a lock, a race) is raised once all others have been driven; a
    database that is away, at once.
    """
    with store.read() as uow:
        due = uow.operations.overdue(uow.now, OVERDUE_BATCH)
    first: ConductorError | None = None
    for operation_id in due:
        try:
            drive([operation_id])
        except (Conflict, Unreachable) as error:
            if error.code in _AWAY:
                raise
            first = first or error
        except Exception:  # one bad operation must not keep the others waiting
            log.exception("an overdue operation cannot be moved", operation=operation_id)
            _put_off(transactions, operation_id)
    if first is not None:
        raise first
    return len(due)


def _put_off(transactions: Transactions, operation_id: str) -> None:
    """Look at a bad operation again in a minute: enough of them would fill every batch."""

    def later(uow: UnitOfWork) -> None:
        record = locked(uow, operation_id)
        if record is not None and not record.state.ended:
            uow.operations.save(replace(record, wake_at=uow.now + PUT_OFF_S))

    try:
        transactions.run(later)
    except Exception:  # it may be the record itself that is bad
        log.exception("a bad operation cannot be put off", operation=operation_id)
