"""Delete instances: one, several, or all that a filter finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from conductor.cli.arguments import member
from conductor.cli.options import HostFilter
from conductor.cli.requests.confirmation import confirm
from conductor.cli.requests.request_options import RequestOptions, with_request_options
from conductor.cli.requests.send_and_wait import submit, submit_all
from conductor.cli.store_queries import instance_named
from conductor.exit_codes import say
from conductor.processes.database_access import open_database
from conductor.store import Instance, UnitOfWork
from models.errors import Rejected
from models.lifecycle import InstanceState
from models.messages.requests import DeleteInstance

_SHOWN: Final = 5


def add_to(app: typer.Typer) -> None:
    """Add `delete`."""
    app.command("delete")(with_request_options(delete))


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
    *,
    options: RequestOptions,
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
        if len(found) == 1 and not given:
            ((instance_id, typed),) = found.items()
            submit(here, DeleteInstance.task, {"instance_id": instance_id}, options, typed)
        else:
            submit_all(here, DeleteInstance.task, found, options)


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
    else:
        confirm(f"Delete {what}: {some}?", f"deleting {what}: {some}", yes)
