"""Delete instances: one, several, or all that a filter finds."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from conductor.cli.arguments import member
from conductor.cli.options import DEFAULT_PROJECT, Deadline, HostFilter, Project, Timeout, Wait
from conductor.cli.rendering.output import Format, Output, show_all, write_line
from conductor.cli.rendering.text_tables import key, table_of
from conductor.cli.requests.request_sending import send_request
from conductor.cli.requests.send_and_wait import Manner, as_typed, ask_for, without_unset
from conductor.cli.requests.wait_display import DEFAULT_TIMEOUT_S, await_end, verdict
from conductor.cli.store_queries import instance_named
from conductor.exit_codes import NO, say
from conductor.processes.database_access import DatabaseAccess, open_database
from conductor.store import Instance, UnitOfWork
from models.errors import Rejected
from models.json_types import JsonDict
from models.lifecycle import InstanceState
from models.messages.requests import DeleteInstance

_SHOWN: Final = 5
_COLUMNS: Final = tuple((name, key(name)) for name in ("id", "instance", "name"))


def add_to(app: typer.Typer) -> None:
    """Add `delete`."""
    app.command("delete")(delete)


def delete(
    instances: Annotated[
        list[str] | None,
        typer.Argument(metavar="INSTANCE...", help="Ids, or names that only one has."),
    ] = None,
    state: Annotated[
        str | None, typer.Option(help="Instead of names: all in this state, such as error.")
    ] = None,
    host: HostFilter = None,
    of_project: Annotated[
        str | None, typer.Option("--of-project", help="Instead of names: all of this project.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask before deleting by state.")
    ] = False,
    project: Project = DEFAULT_PROJECT,
    deadline: Deadline = None,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    output: Output = None,
) -> None:
    """Delete instances, whatever else they are doing: by name, or all that a filter finds."""
    equals = {"state": member(InstanceState, state, "state"), "host": host}
    equals["project_id"] = of_project
    given = {name: value for name, value in equals.items() if value is not None}
    if bool(instances) == bool(given):
        rule = "name the instances, or say which with --state, --host or --of-project"
        raise Rejected("instances_missing", f"INSTANCE: {rule}", key="INSTANCE")
    with open_database() as here:
        with here.store.read() as uow:
            found = _found(uow, given) if given else _named(uow, instances or ())
        if given:
            _confirm(found, yes)
        base = {"context": {"project_id": project}, "deadline_s": deadline}
        bodies = [{**base, "instance_id": instance_id} for instance_id in found]
        manner = Manner(wait, timeout, output)
        if len(bodies) == 1 and not given:
            ask_for(here, DeleteInstance.task, bodies[0], manner, next(iter(found.values())))
        else:
            _delete_many(here, bodies, list(found.values()), manner)


def _named(uow: UnitOfWork, names: Sequence[str]) -> dict[str, str]:
    """Return what was typed by instance id; all must be known before any is deleted."""
    return {instance_named(uow, name).id: name for name in names}


def _found(uow: UnitOfWork, given: dict[str, Any]) -> dict[str, str]:
    found: list[Instance] = sorted(uow.instances.where(**given), key=lambda instance: instance.name)
    return {
        instance.id: instance.name
        for instance in found
        if instance.state is not InstanceState.DELETED
    }


def _confirm(found: dict[str, str], yes: bool) -> None:
    """Say what would go and ask; without a person to ask, `--yes` has to have been said."""
    names = list(found.values())
    some = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    what = f"{len(names)} instance{'s' if len(names) != 1 else ''}"
    if not found:
        say("no instance is so: nothing is deleted")
    elif yes:
        say(f"deleting {what}: {some}")
    elif not sys.stdin.isatty():
        message = f"{what} would be deleted ({some}): say --yes to do so"
        raise Rejected("confirmation_missing", message, key="--yes")
    elif not typer.confirm(f"Delete {what}: {some}?", err=True):
        raise typer.Abort


def _delete_many(
    here: DatabaseAccess, bodies: list[JsonDict], names: list[str], manner: Manner
) -> None:
    """Send all requests, then wait for all where that was asked."""
    rows: list[dict[str, Any]] = []
    for body, name in zip(bodies, names, strict=True):
        id_ = send_request(here, DeleteInstance.task, without_unset(body))
        rows.append({"id": id_, "instance": body["instance_id"], "name": name})
    failed = 0
    if manner.wait:
        for body, row in zip(bodies, rows, strict=True):
            record = await_end(here.store, row["id"], manner.timeout_s)
            row["state"] = record.state.value
            text, code = verdict(record)
            failed += bool(code)
            say(as_typed(text, body, row["name"]))
    if manner.output in (None, Format.TABLE):
        for row in rows:
            write_line(row["id"])
    else:
        show_all(rows, manner.output, lambda: table_of(rows, _COLUMNS))
    if failed:
        raise typer.Exit(NO)
