"""Look at operations, follow them, turn them back."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from conductor.cli.arguments import member
from conductor.cli.options import HostFilter, Limit, ProjectFilter, Timeout
from conductor.cli.rendering.json_views import event_view, operation_view
from conductor.cli.rendering.output import (
    Format,
    Output,
    format_of,
    newest,
    show_all,
    show_one,
    write_lines,
)
from conductor.cli.rendering.output import console as stdout_console
from conductor.cli.rendering.text_tables import clock_time, fields_of, key, table_of
from conductor.cli.requests.request_sending import carrier_of, refuse_unless_alive
from conductor.cli.requests.wait_display import DEFAULT_TIMEOUT_S, verdict
from conductor.cli.store_queries import (
    chunks,
    full_history,
    operation_of,
    operations_on_host,
    stories_of,
)
from conductor.exit_codes import say
from conductor.liveness import UNANSWERED_AFTER_S
from conductor.operations.engine.transitions import Engine
from conductor.operations.operation_registry import OPERATIONS
from conductor.processes.database_access import DatabaseAccess, open_database
from conductor.store import OperationRecord, UnitOfWork
from conductor.transactions import Transactions
from models.errors import Rejected, Unreachable
from models.json_types import JsonDict
from models.lifecycle import OperationState
from models.units import seconds_text

Id = Annotated[str, typer.Argument(metavar="OPERATION", help="The operation's id.")]

_SHOWN: Final = (
    "id",
    "kind",
    "state",
    "step",
    "instances",
    "parent_id",
    "project_id",
    "user_id",
    "request_id",
    "attempt",
    "waiting_on",
    "asked",
    "created_at",
    "ended_at",
)
_ASKED_ONLY: Final = "replay_operation"
"""The kind of a replay that was refused at the door or a dry run: it took nothing up."""
_POLL_S: Final = 0.2
_ARRIVES_WITHIN_S: Final = 3.0
_MOST_DECISIONS: Final = 20
_MOST_CHILDREN: Final = 4


def add_to(app: typer.Typer) -> None:
    """Add `operations` with its verbs."""
    operations = typer.Typer(help="Look at operations, follow them, turn them back.")
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
    equals: dict[str, Any] = {"state": member(OperationState, state, "state"), "kind": kind}
    kinds = (*OPERATIONS, _ASKED_ONLY)
    if kind is not None and kind not in kinds:
        message = f"kind is {kind}: should be one of {', '.join(kinds)}"
        raise Rejected("value_unknown", message, key="kind")
    equals["project_id"] = project
    with open_database() as here, here.store.read() as uow:
        given = {name: value for name, value in equals.items() if value is not None}
        records = uow.operations.where(**given)
        if host is not None:
            ids = operations_on_host(uow, host, records)
            records = [record for record in records if record.id in ids]
        rows = _views(uow, newest(records, limit))
    show_all(rows, output, lambda: table_of(rows, _COLUMNS))


def show(operation: Id, output: Output = None) -> None:
    """Show one operation: where it stands, what was tried and why, its story."""
    with open_database() as here, here.store.read() as uow:
        record = operation_of(uow, operation)
        row = operation_view(record, full_history(uow, record), uow.now)
    show_one(row, output, lambda: _picture(row))


def watch(operation: Id, timeout: Timeout = DEFAULT_TIMEOUT_S, output: Output = None) -> None:
    """Print the story of an operation and of its children while it happens, until it ends."""
    form = format_of(output)
    with open_database() as here:
        _await_acceptance(here, operation, timeout)
        for rows in _news(here, operation, timeout):
            if form is Format.TABLE:
                for row in rows:
                    stdout_console().print(_line(row), soft_wrap=True)
            else:
                write_lines(rows)
        with here.store.read() as uow:
            text, code = verdict(operation_of(uow, operation))
    if code:
        say(text)
        raise typer.Exit(code)


def cancel(
    operation: Id,
    reason: Annotated[str, typer.Option(help="Why, for its story.")] = "cancelled by an operator",
) -> None:
    """Ask an operation to turn back at its next boundary; what it did is undone."""
    with open_database() as here:
        with here.store.read() as uow:
            record = operation_of(uow, operation)
            if here.settings.embedded:
                refuse_unless_alive(uow)
        if record.state.ended:
            message = f"operation is {record.id}: it has ended ({record.state.value})"
            raise Rejected("operation_ended", message, key="operation")
        outbox = Transactions(here.store, carrier_of(here))
        outbox.run(lambda uow: _turn_back(uow, record, reason))
    say(f"operation {record.id} turns back")


def _turn_back(uow: UnitOfWork, record: OperationRecord, reason: str) -> None:
    """Mark it and its children; the reaper of a running conductor takes the next step."""
    for ready in Engine(OPERATIONS).cancel(uow, record.id, reason):
        marked = uow.operations.lock(ready)
        if marked is not None and not marked.state.ended:
            uow.operations.save(replace(marked, wake_at=uow.now))


def _views(uow: UnitOfWork, records: Sequence[OperationRecord]) -> list[JsonDict]:
    stories = stories_of(uow, records)
    return [operation_view(record, stories[record.id], uow.now) for record in records]


def _await_acceptance(here: DatabaseAccess, operation_id: str, timeout_s: float) -> None:
    """Give a request that has just been sent a moment to arrive."""
    deadline = time.monotonic() + min(timeout_s, _ARRIVES_WITHIN_S)
    while time.monotonic() < deadline:
        with here.store.read() as uow:
            if uow.operations.get(operation_id.lower()) is not None:
                return
        time.sleep(_POLL_S)


def _news(here: DatabaseAccess, operation_id: str, timeout_s: float) -> Iterator[list[JsonDict]]:
    """Return what has newly happened, again and again, until the operation has ended."""
    deadline = time.monotonic() + timeout_s
    told: set[int | None] = set()
    while True:
        with here.store.read() as uow:
            record = operation_of(uow, operation_id)
            family = [record, *uow.operations.where(parent_id=record.id)]
            kinds = {operation.id: operation.kind for operation in family}
            events = [e for ids in chunks(list(kinds)) for e in uow.events.where(operation_id=ids)]
        fresh = sorted((e for e in events if e.id not in told), key=lambda event: event.at)
        told.update(event.id for event in fresh)
        yield [event_view(event, kinds[event.operation_id]) for event in fresh]
        if record.state.ended:
            return
        if time.monotonic() >= deadline:
            message = f"operation {record.id} has not ended within {seconds_text(timeout_s)}"
            raise Unreachable("timed_out", f"{message}: it is {record.state.value}")
        time.sleep(_POLL_S)


def _line(row: JsonDict) -> Text:
    return Text.assemble(
        (f"{clock_time(row['at'])} ", "dim"),
        (f"{row['kind']} {row['operation_id'][:8]} ", "cyan"),
        (f"{row['event']} ", "bold"),
        row["detail"],
    )


def _picture(row: JsonDict) -> RenderableType:
    several = len(row["instances"]) > _MOST_CHILDREN
    shown = [name for name in _SHOWN if not (several and name == "instances")]
    parts: list[RenderableType] = [fields_of(row, shown)]
    if row["error"]:
        parts += ["", Text.assemble(("why it ended  ", "bold red"), row["error"]["message"])]
    if row["attempts"]:
        parts += ["", _titled("attempts", table_of(row["attempts"], _ATTEMPT_COLUMNS, fold=True))]
    if row["decisions"]:
        some = row["decisions"][:_MOST_DECISIONS]
        parts += ["", _titled("decisions", table_of(some, _DECISION_COLUMNS, fold=True))]
    if row["children"]:
        parts += ["", Text.assemble(("children  ", "bold"), _children(row))]
    parts += ["", _titled("story", table_of(row["events"], _EVENT_COLUMNS, fold=True))]
    return Group(*parts)


def _children(row: JsonDict) -> str:
    """Return the children's ids where they are few, else how many of them are in which state."""
    ids = row["children"]
    if len(ids) <= _MOST_CHILDREN:
        return " ".join(ids)
    counts = ", ".join(f"{many} {state}" for state, many in row["children_by_state"].items())
    return f"{len(ids)}: {counts}; -o json has their ids, `explain {row['id']}` their decisions"


def _titled(title: str, what: RenderableType) -> RenderableType:
    return Group(Text(title, style="bold"), what)


def _why_so_far(row: JsonDict) -> str | None:
    """Return why an operation failed, or who has not answered it for long."""
    asked = row["asked"]
    if row["error"] or asked is None or asked["for_s"] < UNANSWERED_AFTER_S:
        return (row["error"] or {}).get("message")
    who = asked["host"] or "the scheduler"
    return f"{who} has not answered {asked['verb']} for {seconds_text(asked['for_s'])}"


def _why(decision: JsonDict) -> str:
    """Return a decision in one line: what was looked at, what fell out, what else would do."""
    detail = decision["detail"]
    if detail.get("error"):
        return str(detail["error"].get("message"))
    parts = [f"of {detail.get('hosts', '?')} hosts"]
    parts += [f"{item['hosts']} {item['check']}" for item in detail.get("checks", ())]
    if detail.get("alternates"):
        parts.append(f"else {' '.join(detail['alternates'])}")
    return ", ".join(parts)


_COLUMNS: Final = (
    ("id", key("id")),
    ("kind", key("kind")),
    ("state", key("state")),
    ("began", lambda row: clock_time(row["created_at"])),
    ("ended", lambda row: clock_time(row["ended_at"])),
    ("step", key("step")),
    ("why", _why_so_far),
)
_ATTEMPT_COLUMNS: Final = (
    ("step", key("step")),
    ("host", lambda row: row.get("host")),
    ("why", lambda row: row["error"]["message"]),
)
_DECISION_COLUMNS: Final = (
    ("at", lambda row: clock_time(row["at"])),
    ("host", key("host")),
    ("why", _why),
)
_EVENT_COLUMNS: Final = (
    ("at", lambda row: clock_time(row["at"])),
    ("event", key("event")),
    ("detail", key("detail")),
)
