"""Operations: list and show them, follow their events, cancel them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from conductor.cli.arguments import choice, member
from conductor.cli.commands.operation_cancel import cancel
from conductor.cli.commands.operation_watch import OperationId, watch
from conductor.cli.options import HostFilter, Limit, ProjectFilter
from conductor.cli.rendering.json_views import operation_view
from conductor.cli.rendering.output import (
    Output,
    newest,
    show_all,
    show_one,
)
from conductor.cli.rendering.render_operation import OPERATION_COLUMNS, operation_picture
from conductor.cli.rendering.text_tables import table_of
from conductor.cli.store_queries import (
    full_history,
    histories_of,
    operation_of,
    operations_on_host,
)
from conductor.operations.operation_registry import OPERATIONS
from conductor.processes.database_access import open_database
from conductor.store import OperationRecord, UnitOfWork
from models.json_types import JsonDict
from models.lifecycle import OperationState

_REQUEST_ONLY: Final = "replay_operation"
"""The kind of a replay that was rejected or a dry run: it replayed nothing."""


def add_to(app: typer.Typer) -> None:
    """Add `operations` with its verbs."""
    operations = typer.Typer(help="List and show operations, follow their events, cancel them.")
    operations.command("list")(list_all)
    operations.command("show")(show)
    operations.command("watch")(watch)
    operations.command("cancel")(cancel)
    app.add_typer(operations, name="operations", no_args_is_help=True)


def list_all(
    state: Annotated[str | None, typer.Option(help="Only in this state.")] = None,
    kind: Annotated[
        str | None, typer.Option(help="Only of this kind, e.g. build_instance.")
    ] = None,
    host: HostFilter = None,
    project: ProjectFilter = None,
    limit: Limit = 100,
    output: Output = None,
) -> None:
    """List operations, oldest first."""
    equals: dict[str, Any] = {
        "state": member(OperationState, state, "state"),
        "kind": choice((*OPERATIONS, _REQUEST_ONLY), kind, "kind"),
    }
    equals["project_id"] = project
    with open_database() as here, here.store.read() as uow:
        given = {name: value for name, value in equals.items() if value is not None}
        records = uow.operations.where(**given)
        if host is not None:
            ids = operations_on_host(uow, host, records)
            records = [record for record in records if record.id in ids]
        rows = _views(uow, newest(records, limit))
    show_all(rows, output, lambda: table_of(rows, OPERATION_COLUMNS))


def show(operation: OperationId, output: Output = None) -> None:
    """Show one operation: its step, attempts, decisions and history."""
    with open_database() as here, here.store.read() as uow:
        record = operation_of(uow, operation)
        row = operation_view(record, full_history(uow, record), uow.now)
    show_one(row, output, lambda: operation_picture(row))


def _views(uow: UnitOfWork, records: Sequence[OperationRecord]) -> list[JsonDict]:
    histories = histories_of(uow, records)
    return [operation_view(record, histories[record.id], uow.now) for record in records]
