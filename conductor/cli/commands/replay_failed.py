"""Replay moves and other operations that have failed."""

from __future__ import annotations

from typing import Annotated

import typer

from conductor.cli.failed_operations import failed_moves, operation_or_move
from conductor.cli.options import DEFAULT_PROJECT, Project, Timeout, Wait
from conductor.cli.rendering.output import Output, show_all
from conductor.cli.rendering.text_tables import key, table_of
from conductor.cli.requests.request_options import RequestOptions
from conductor.cli.requests.request_sending import send_request
from conductor.cli.requests.send_and_wait import submit
from conductor.cli.requests.wait_display import DEFAULT_TIMEOUT_S, await_end
from conductor.exit_codes import say
from conductor.processes.database_access import DatabaseAccess, open_database
from conductor.store import OperationRecord
from models.errors import Rejected
from models.json_types import JsonDict
from models.messages.requests import ReplayOperation


def replay(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID...", help="Of moves or operations.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every move that has failed and was not replayed since.")
    ] = False,
    since: Annotated[str, typer.Option(help="With --all: not older than this, e.g. 2h.")] = "1d",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be done with each.")
    ] = False,
    limit_running: Annotated[int, typer.Option(min=1, help="So many at once.")] = 4,
    project: Project = DEFAULT_PROJECT,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    output: Output = None,
) -> None:
    """Replay what has failed: go on, roll back, declare it done, or refuse with the reasons."""
    if bool(ids) == every:
        raise Rejected("ids_missing", "name IDs to replay, or --all", key="ID")
    with open_database() as here:
        with here.store.read() as uow:
            old = (
                failed_moves(uow, since)
                if every
                else [operation_or_move(uow, identifier) for identifier in ids or ()]
            )
        if len(old) == 1 and not dry_run:
            options = RequestOptions(project, wait=wait, timeout=timeout, output=output)
            submit(here, ReplayOperation.task, {"operation_id": old[0].id}, options)
            return
        rows = _replay_many(here, old, (project, dry_run), limit_running, timeout)
    show_all(rows, output, lambda: table_of(rows, [(n, key(n)) for n in ("old", "new", "outcome")]))
    if any(row["outcome"].startswith("refused") for row in rows):
        raise typer.Exit(3)


def _replay_many(
    here: DatabaseAccess,
    old: list[OperationRecord],
    context: tuple[str, bool],
    limit_running: int,
    timeout_s: float,
) -> list[JsonDict]:
    """Replay a few at a time, for a project, dry or not, and return the outcome of each."""
    project, dry_run = context
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
