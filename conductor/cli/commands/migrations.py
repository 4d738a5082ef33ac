"""Look at migrations, read their stories, and replay what has failed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from conductor.cli.arguments import member
from conductor.cli.options import DEFAULT_PROJECT, HostFilter, Limit, Project, Timeout, Wait
from conductor.cli.rendering.json_views import migration_view
from conductor.cli.rendering.output import Output, newest, show_all, show_one
from conductor.cli.rendering.text_tables import clock_time, fields_of, key, table_of
from conductor.cli.requests.request_sending import send_request
from conductor.cli.requests.send_and_wait import Manner, ask_for
from conductor.cli.requests.wait_display import DEFAULT_TIMEOUT_S, await_end
from conductor.cli.store_queries import chunks, only_one
from conductor.exit_codes import say
from conductor.operations.operation_registry import OPERATIONS
from conductor.processes.database_access import DatabaseAccess, open_database
from conductor.store import Migration, OperationRecord, UnitOfWork
from models.errors import Rejected
from models.json_types import JsonDict
from models.lifecycle import MigrationKind, MigrationState, OperationState
from models.messages.requests import ReplayOperation

FAILED: Final = (OperationState.FAILED, OperationState.STUCK)
_MOVES: Final = (
    "migrate_instance",
    "resize_instance",
    "live_migrate_instance",
    "evacuate_instance",
    "confirm_resize",
    "revert_resize",
)
"""Kinds of operations that `migrations replay --all` takes up."""

_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_COLUMNS: Final = tuple(
    (name, key(name))
    for name in ("id", "instance_id", "kind", "state", "source", "target", "created_at")
)
_STORY: Final = (("at", lambda row: clock_time(row["at"])), ("what", key("what")))


def add_to(app: typer.Typer) -> None:
    """Add `migrations` with its verbs."""
    migrations = typer.Typer(help="Moves of instances: look, read the story, replay.")
    migrations.command("list")(list_all)
    migrations.command("show")(show)
    migrations.command("replay")(replay)
    app.add_typer(migrations, name="migrations", no_args_is_help=True)


def list_all(
    failed: Annotated[
        bool,
        typer.Option(
            "--failed", help="Only those that failed and that no replay has mended since."
        ),
    ] = False,
    state: Annotated[str | None, typer.Option(help="Only in this state.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only of this kind, e.g. resize.")] = None,
    host: HostFilter = None,
    limit: Limit = 100,
    output: Output = None,
) -> None:
    """List moves, oldest first."""
    asked = MigrationState.ERROR if failed else member(MigrationState, state, "state")
    equals: dict[str, Any] = {"state": asked, "kind": member(MigrationKind, kind, "kind")}
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
    """Show one move: both ends, what each holds now, why it failed, its story."""
    with open_database() as here, here.store.read() as uow:
        found = _move(uow, migration)
        if found is None:
            message = f"ID is {migration}: no such migration"
            raise Rejected("migration_unknown", message, key="ID")
        row = migration_view(uow, found)
    show_one(row, output, lambda: _picture(row))


def replay(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID...", help="Of moves or operations.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every move that has failed and was not taken up since.")
    ] = False,
    since: Annotated[str, typer.Option(help="With --all: not older than this, e.g. 2h.")] = "1d",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would become of each.")
    ] = False,
    limit_running: Annotated[int, typer.Option(min=1, help="So many at once.")] = 4,
    project: Project = DEFAULT_PROJECT,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    output: Output = None,
) -> None:
    """Take up again what has failed: forward, back, declared done, or refused with the reasons."""
    if bool(ids) == every:
        raise Rejected("ids_missing", "name IDs to replay, or --all", key="ID")
    with open_database() as here:
        with here.store.read() as uow:
            old = (
                _failed_since(uow, since)
                if every
                else [_operation(uow, identifier) for identifier in ids or ()]
            )
        if len(old) == 1 and not dry_run:
            body = {"context": {"project_id": project}, "operation_id": old[0].id}
            ask_for(here, ReplayOperation.task, body, Manner(wait, timeout, output))
            return
        rows = _replay_many(here, old, (project, dry_run), limit_running, timeout)
    show_all(rows, output, lambda: table_of(rows, [(n, key(n)) for n in ("old", "new", "outcome")]))
    if any(row["outcome"].startswith("refused") for row in rows):
        raise typer.Exit(3)


def _replay_many(
    here: DatabaseAccess,
    old: list[OperationRecord],
    asked: tuple[str, bool],
    limit_running: int,
    timeout_s: float,
) -> list[JsonDict]:
    """Replay a few at a time and return what became of each."""
    project, dry_run = asked
    rows: list[JsonDict] = []
    for start in range(0, len(old), limit_running):
        batch = old[start : start + limit_running]
        sent = []
        for record in batch:
            body = {
                "context": {"project_id": project},
                "operation_id": record.id,
                "dry_run": dry_run,
            }
            sent.append(send_request(here, ReplayOperation.task, body))
        for record, new_id in zip(batch, sent, strict=True):
            ended = await_end(here.store, new_id, timeout_s)
            rows.append({"old": record.id, "new": new_id, "outcome": _outcome(ended)})
            say(f"{len(rows)} of {len(old)} {'looked at' if dry_run else 'replayed'}")
    return rows


def _outcome(record: OperationRecord) -> str:
    if record.data.get("outcome"):
        return f"{record.data['outcome']}: {'; '.join(record.data['reasons'])}"
    error = record.error or {}
    if error.get("code") == "replay_refused":
        return f"refused: {error['message']}"
    return record.state.value.lower() + (f": {error['message']}" if error else "")


def _failed_since(uow: UnitOfWork, since: str) -> list[OperationRecord]:
    """Return the moves that failed lately and that no replay has taken up since.

    Of a chain of replays the last: its forerunners are over. What was refused at the door has no
    state and is left out: nobody waits for it any more.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", since)
    if found is None:
        message = f"--since is {since}: should be a number with s, m, h or d, like 2h"
        raise Rejected("since_invalid", message, key="--since")
    oldest = uow.now - float(found[1]) * _UNITS[found[2]]
    failed = [
        record
        for record in uow.operations.where(state=FAILED)
        if record.kind in _MOVES and (record.ended_at or 0.0) >= oldest and record.data
    ]
    taken_up = {
        later.replay_of
        for some in chunks([record.id for record in failed])
        for later in uow.operations.where(replay_of=some)
        if later.kind in OPERATIONS and (later.data or later.state is OperationState.SUCCEEDED)
    }
    return [record for record in failed if record.id not in taken_up]


def mended_since(uow: UnitOfWork, ids: Sequence[str]) -> set[str]:
    """Return those of the failed operations of which a replay, or a replay of that, succeeded."""
    first = {id_: id_ for id_ in ids}
    mended: set[str] = set()
    while first:
        later = [
            record
            for some in chunks(list(first))
            for record in uow.operations.where(replay_of=some)
            if record.kind in OPERATIONS
        ]
        mended |= {first[r.replay_of or ""] for r in later if r.state is OperationState.SUCCEEDED}
        first = {r.id: first[r.replay_of or ""] for r in later if r.state.ended}
    return mended


def _move(uow: UnitOfWork, text: str) -> Migration | None:
    """Return the move with this id, or of the operation with this id; beginnings of ids do too."""
    found = only_one(uow.migrations, text, "migrations", "ID")
    if found is None and (record := only_one(uow.operations, text, "operations", "ID")) is not None:
        return next(iter(uow.migrations.where(operation_id=record.id)), None)
    return found


def _operation(uow: UnitOfWork, name: str) -> OperationRecord:
    move = only_one(uow.migrations, name, "migrations", "ID")
    record = only_one(uow.operations, move.operation_id if move else name, "operations", "ID")
    if record is None:
        raise Rejected("operation_unknown", f"ID is {name}: no such operation or move", key="ID")
    return record


def _picture(row: JsonDict) -> RenderableType:
    plain = {name: value for name, value in row.items() if name != "story"}
    story = table_of(row["story"], _STORY, fold=True)
    return Group(fields_of(plain), "", Text("story", style="bold"), story)
