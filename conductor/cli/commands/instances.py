"""Look at instances."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from conductor.cli.arguments import member
from conductor.cli.commands.console_log import console, console_log
from conductor.cli.commands.orphans import orphan_commands
from conductor.cli.options import HostFilter, Limit, ProjectFilter
from conductor.cli.rendering.json_views import action_view, instance_view
from conductor.cli.rendering.output import Output, newest, show_all, show_one
from conductor.cli.rendering.text_tables import clock_time, fields_of, key, table_of
from conductor.cli.requests.instance_requests import instance_command
from conductor.cli.store_queries import actions_of, instance_named
from conductor.processes.database_access import open_database
from models.json_types import Json, JsonDict
from models.lifecycle import InstanceState
from models.messages.requests import SnapshotInstance

_SHOWN: Final = (
    "id",
    "name",
    "state",
    "task_state",
    "power_state",
    "host",
    "availability_zone",
    "group",
    "project_id",
    "operation_id",
    "created_at",
    "flavor",
    "image",
)


def add_to(app: typer.Typer) -> None:
    """Add `instances` with its verbs."""
    instances = typer.Typer(help="Look at instances.")
    instances.command("list")(list_all)
    instances.command("show")(show)
    instances.command("actions")(actions)
    instances.command("snapshot")(instance_command(SnapshotInstance, snapshot))
    instances.command("console-log")(console_log)
    instances.command("console")(console)
    instances.add_typer(orphan_commands(), name="orphans", no_args_is_help=True)
    app.add_typer(instances, name="instances", no_args_is_help=True)


def snapshot(
    image_name: Annotated[
        str | None, typer.Option("--image-name", help="Of the image; else NAME-snapshot.")
    ] = None,
) -> Json:
    """Make an image of the root disk of an instance; its id is in the result."""
    return {"image_name": image_name}


def list_all(
    state: Annotated[
        str | None, typer.Option(help="Only in this state; deleted ones are shown only so.")
    ] = None,
    host: HostFilter = None,
    project: ProjectFilter = None,
    limit: Limit = 1000,
    output: Output = None,
) -> None:
    """List instances, oldest first."""
    chosen = member(InstanceState, state, "state")
    states = [chosen] if chosen else [literal for literal in InstanceState if literal is not _GONE]
    equals: dict[str, Any] = {"state": states, "host": host, "project_id": project}
    with open_database() as here, here.store.read() as uow:
        given = {name: value for name, value in equals.items() if value is not None}
        found = newest(uow.instances.where(**given), limit)
        rows = [instance_view(instance) for instance in found]
    show_all(rows, output, lambda: table_of(rows, _COLUMNS))


def show(
    instance: Annotated[str, typer.Argument(help="The id, or a name that only one has.")],
    output: Output = None,
) -> None:
    """Show one instance: what it is, where it is, on which CPUs and pages."""
    with open_database() as here, here.store.read() as uow:
        row = instance_view(instance_named(uow, instance))
    show_one(row, output, lambda: _picture(row))


def actions(
    instance: Annotated[str, typer.Argument(help="The id, or a name that only one has.")],
    output: Output = None,
) -> None:
    """Show what was done to an instance: who chosen for what, when, what happened, how it ended."""
    with open_database() as here, here.store.read() as uow:
        rows = [action_view(action) for action in actions_of(uow, instance)]
    show_all(rows, output, lambda: _history(rows))


def _history(rows: list[JsonDict]) -> RenderableType:
    parts: list[RenderableType] = [table_of(rows, _ACTION_COLUMNS)]
    for row in rows:
        title = f"{row['kind']} {row['operation_id']}"
        parts += ["", Text(title, style="bold"), table_of(row["events"], _EVENT_COLUMNS, fold=True)]
    return Group(*parts)


def _way(row: JsonDict) -> str | None:
    move = row["migration"]
    return f"{move['source']} → {move['target'] or '?'}, {move['state']}" if move else None


def _who(row: JsonDict) -> str:
    return " ".join(item for item in (row["project_id"], row["user_id"], row["request_id"]) if item)


def _picture(row: JsonDict) -> RenderableType:
    parts: list[RenderableType] = [fields_of(row, _SHOWN)]
    if row["fault"]:
        parts += ["", Text.assemble(("fault  ", "bold red"), row["fault"]["message"])]
    if row["placement"]:
        cells = row["placement"]["cells"]
        parts += ["", Text("placement", style="bold"), table_of(cells, _CELL_COLUMNS)]
    return Group(*parts)


def _size(row: JsonDict) -> str:
    flavor = row["flavor"]
    return f"{flavor['vcpus']}x{flavor['memory_mb']}"


def _pins(cell: JsonDict) -> str | None:
    pinned = cell["cpu_pinning"].items()
    return " ".join(f"{vcpu}→{cpu}" for vcpu, cpu in pinned) or None


def _page(cell: JsonDict) -> str | None:
    return f"{cell['pagesize']} KiB" if cell["pagesize"] else None


_GONE: Final = InstanceState.DELETED
_COLUMNS: Final = (
    ("id", key("id")),
    ("name", key("name")),
    ("state", key("state")),
    ("task", key("task_state")),
    ("host", key("host")),
    ("flavor", lambda row: row["flavor"]["name"]),
    ("vCPU x MiB", _size),
    ("fault", lambda row: (row["fault"] or {}).get("message")),
)
_CELL_COLUMNS: Final = (
    ("guest cell", key("id")),
    ("host cell", key("host_cell")),
    ("MiB", key("memory")),
    ("pages", _page),
    ("shared vCPUs", lambda cell: " ".join(map(str, cell["cpuset"])) or None),
    ("vCPU→CPU", _pins),
)
_ACTION_COLUMNS: Final = (
    ("operation", key("operation_id")),
    ("what", key("kind")),
    ("who", _who),
    ("began", lambda row: row["created_at"]),
    ("ended", lambda row: row["ended_at"]),
    ("result", key("state")),
    ("move", _way),
    ("why", lambda row: (row["error"] or {}).get("message")),
)
_EVENT_COLUMNS: Final = (
    ("at", lambda row: clock_time(row["at"])),
    ("event", key("event")),
    ("detail", key("detail")),
)
