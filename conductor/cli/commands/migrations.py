"""Migrations: list and show them with their history, and replay what has failed."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from conductor.cli.arguments import member
from conductor.cli.commands.replay_failed import replay
from conductor.cli.failed_operations import mended_since
from conductor.cli.options import HostFilter, Limit
from conductor.cli.rendering.json_views import migration_view
from conductor.cli.rendering.output import Output, newest, show_all, show_one
from conductor.cli.rendering.text_tables import clock_time, fields_of, key, table_of
from conductor.cli.store_queries import only_one
from conductor.processes.database_access import open_database
from conductor.store import Migration, UnitOfWork
from models.errors import Rejected
from models.json_types import JsonDict
from models.lifecycle import MigrationKind, MigrationState

_COLUMNS: Final = tuple(
    (name, key(name))
    for name in ("id", "instance_id", "kind", "state", "source", "target", "created_at")
)
_HISTORY: Final = (("at", lambda row: clock_time(row["at"])), ("what", key("what")))


def add_to(app: typer.Typer) -> None:
    """Add `migrations` with its verbs."""
    migrations = typer.Typer(help="Moves of instances: list, show with their history, replay.")
    migrations.command("list")(list_all)
    migrations.command("show")(show)
    migrations.command("replay")(replay)
    app.add_typer(migrations, name="migrations", no_args_is_help=True)


def list_all(
    failed: Annotated[
        bool,
        typer.Option(
            "--failed", help="Only those that failed and that no replay has put right since."
        ),
    ] = False,
    state: Annotated[str | None, typer.Option(help="Only in this state.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only of this kind, e.g. resize.")] = None,
    host: HostFilter = None,
    limit: Limit = 100,
    output: Output = None,
) -> None:
    """List moves, oldest first."""
    chosen = MigrationState.ERROR if failed else member(MigrationState, state, "state")
    equals: JsonDict = {"state": chosen, "kind": member(MigrationKind, kind, "kind")}
    with open_database() as here, here.store.read() as uow:
        given = {name: value for name, value in equals.items() if value is not None}
        found = [
            migration
            for migration in uow.migrations.where(**given)
            if host is None or host in (migration.source, migration.target)
        ]
        if failed:
            mended = mended_since(uow, [migration.operation_id for migration in found])
            found = [migration for migration in found if migration.operation_id not in mended]
        rows = [migration_view(uow, migration) for migration in newest(found, limit)]
    show_all(rows, output, lambda: table_of(rows, _COLUMNS))


def show(
    migration: Annotated[str, typer.Argument(metavar="ID", help="Of a move or its operation.")],
    output: Output = None,
) -> None:
    """Show one move: both ends, what each has allocated, why it failed, its history."""
    with open_database() as here, here.store.read() as uow:
        found = _move(uow, migration)
        if found is None:
            message = f"ID is {migration}: no such migration"
            raise Rejected("migration_unknown", message, key="ID")
        row = migration_view(uow, found)
    show_one(row, output, lambda: _picture(row))


def _move(uow: UnitOfWork, text: str) -> Migration | None:
    """Return the move with this id, or of the operation with this id; beginnings of ids do too."""
    found = only_one(uow.migrations, text, "migrations", "ID")
    if found is None and (record := only_one(uow.operations, text, "operations", "ID")) is not None:
        return next(iter(uow.migrations.where(operation_id=record.id)), None)
    return found


def _picture(row: JsonDict) -> RenderableType:
    fields = {name: value for name, value in row.items() if name != "story"}
    history = table_of(row["story"], _HISTORY, fold=True)
    return Group(fields_of(fields), "", Text("history", style="bold"), history)
