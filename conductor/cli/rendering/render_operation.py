"""An operation for people: its fields, attempts, decisions and history as tables."""

from __future__ import annotations

from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from conductor.cli.rendering.text_tables import clock_time, fields_of, key, table_of
from conductor.liveness import UNANSWERED_AFTER_S
from models.json_types import JsonDict
from models.units import seconds_text

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
_MOST_DECISIONS: Final = 20
_MOST_CHILDREN: Final = 4


def operation_picture(row: JsonDict) -> RenderableType:
    """Return what `operations show` prints on a terminal."""
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
    parts += ["", _titled("history", table_of(row["events"], _EVENT_COLUMNS, fold=True))]
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
    """Return why an operation failed, or which dispatch has had no reply for long."""
    dispatch = row["asked"]
    if row["error"] or dispatch is None or dispatch["for_s"] < UNANSWERED_AFTER_S:
        return (row["error"] or {}).get("message")
    who = dispatch["host"] or "the scheduler"
    return f"{who} has not answered {dispatch['verb']} for {seconds_text(dispatch['for_s'])}"


def _why(decision: JsonDict) -> str:
    """Return a decision in one line: hosts considered, filtered out, and alternates."""
    detail = decision["detail"]
    if detail.get("error"):
        return str(detail["error"].get("message"))
    parts = [f"of {detail.get('hosts', '?')} hosts"]
    parts += [f"{check['hosts']} {check['check']}" for check in detail.get("checks", ())]
    if detail.get("alternates"):
        parts.append(f"else {' '.join(detail['alternates'])}")
    return ", ".join(parts)


OPERATION_COLUMNS: Final = (
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
