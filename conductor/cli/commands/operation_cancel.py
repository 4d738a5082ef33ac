"""Cancel an operation."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from conductor.cli.commands.operation_watch import OperationId
from conductor.cli.requests.request_sending import refuse_unless_alive, run_transaction
from conductor.cli.store_queries import operation_of
from conductor.exit_codes import say
from conductor.operations.engine.transitions import Engine
from conductor.operations.operation_registry import OPERATIONS
from conductor.processes.database_access import open_database
from conductor.store import OperationRecord, UnitOfWork
from models.errors import Rejected


def cancel(
    operation: OperationId,
    reason: Annotated[str, typer.Option(help="Why, for its history.")] = "cancelled by an operator",
) -> None:
    """Cancel an operation: it rolls back at its next step boundary."""
    with open_database() as here:
        with here.store.read() as uow:
            record = operation_of(uow, operation)
            if here.settings.embedded:
                refuse_unless_alive(uow)
        if record.state.ended:
            message = f"operation is {record.id}: it has ended ({record.state.value})"
            raise Rejected("operation_ended", message, key="operation")
        run_transaction(here, lambda uow: _cancel(uow, record, reason))
    say(f"operation {record.id} is cancelled: it rolls back")


def _cancel(uow: UnitOfWork, record: OperationRecord, reason: str) -> None:
    """Mark it and its children; the reaper of a running conductor takes the next step."""
    for ready in Engine(OPERATIONS).cancel(uow, record.id, reason):
        marked = uow.operations.lock(ready)
        if marked is not None and not marked.state.ended:
            uow.operations.save(replace(marked, wake_at=uow.now))
