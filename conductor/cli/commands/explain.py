"""Say why hosts were chosen, or none was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from conductor.cli.fleet_inspection import FleetInspection
from conductor.cli.rendering.json_views import moment
from conductor.cli.rendering.output import Output, show_one
from conductor.cli.rendering.text_tables import key, table_of
from conductor.cli.store_queries import full_history, operation_of
from conductor.processes.database_access import open_database
from conductor.scheduling.analysis.explanation import history_of, verdicts
from conductor.settings import Settings
from conductor.store import Decision, OperationRecord, UnitOfWork
from models.json_types import JsonDict

_MOST_SHOWN: Final = 20


def add_to(app: typer.Typer) -> None:
    """Add `explain`."""
    app.command("explain")(explain)


def explain(
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="The operation's id.")],
    full: Annotated[
        bool, typer.Option("--full", help="Every host's verdict, worked out on today's fleet.")
    ] = False,
    output: Output = None,
) -> None:
    """Explain the scheduler's decisions: hosts filtered out, the selection, alternates, nearest."""
    with open_database() as here, here.store.read() as uow:
        record = operation_of(uow, operation)
        decisions = sorted(full_history(uow, record).decisions, key=lambda decision: decision.at)
        row = explanation(record, decisions)
        if full and decisions:
            every_host = _full(uow, here.settings, decisions[-1])
            row = {**row, "full_at": moment(uow.now), "full": every_host}
    show_one(row, output, lambda: _picture(row))


def explanation(record: OperationRecord, decisions: Sequence[Decision]) -> JsonDict:
    """Return the decisions of an operation and its children in words, the answer first."""
    rows = [_decision_row(decision) for decision in decisions]
    return {
        "operation_id": record.id,
        "kind": record.kind,
        "state": record.state.value,
        "answer": _answer(record, rows),
        "decisions": rows,
    }


def _decision_row(decision: Decision) -> JsonDict:
    return {
        "at": moment(decision.at),
        "operation_id": decision.operation_id,
        "instance_id": decision.instance_id,
        "host": decision.host,
        "story": list(history_of(decision.detail, decision.host)),
        "detail": dict(decision.detail),
    }


def _answer(record: OperationRecord, rows: Sequence[JsonDict]) -> str:
    if not rows:
        return f"{record.kind} requested no host" if record.state.ended else "not decided yet"
    refused = next((row for row in reversed(rows) if row["host"] is None), None)
    if refused is not None or len(rows) == 1:
        return str((refused or rows[0])["story"][0])
    hosts = {row["host"] for row in rows}
    return f"{len(rows)} decisions on {len(hosts)} hosts; the last: {rows[-1]['story'][0]}"


def _full(uow: UnitOfWork, settings: Settings, decision: Decision) -> list[dict[str, Any]]:
    """Return the verdict on every host for the instance of a decision, as the fleet is now."""
    instance = uow.instances.get(decision.instance_id)
    if instance is None:
        return []
    inspection = FleetInspection(uow, settings)
    spec = inspection.request_spec_again(instance, decision.operation_id)
    return [verdict.to_json() for verdict in verdicts(spec, inspection.fleet, inspection.settings)]


def _picture(row: JsonDict) -> RenderableType:
    parts: list[RenderableType] = [Text(row["answer"], style="bold")]
    for decided in row["decisions"][:_MOST_SHOWN]:
        parts += ["", Text(f"{decided['at']} {decided['instance_id']}", style="dim")]
        parts += [Text(f"  {line}") for line in decided["story"]]
    if more := row["decisions"][_MOST_SHOWN:]:
        parts += ["", Text(f"and {len(more)} more decisions", style="dim")]
    if row.get("full"):
        when = "worked out on the fleet as it is now, not as it was when it was decided"
        parts += [
            "",
            Text(f"every host, {when}", style="bold"),
            table_of(row["full"], _COLUMNS, fold=True),
        ]
    return Group(*parts)


_COLUMNS: Final = (
    ("host", key("host")),
    ("check", key("check")),
    ("why", key("text")),
    ("need", lambda row: row.get("need")),
    ("have", lambda row: row.get("have")),
    ("score", lambda row: row.get("score")),
)
