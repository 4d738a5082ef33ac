"""Guests that hosts have and no instance does: listed, and removed where an operator says so."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from conductor.cli.options import HostFilter
from conductor.cli.rendering.output import Output, show_all
from conductor.cli.rendering.text_tables import key, table_of
from conductor.cli.requests.confirmation import confirm
from conductor.cli.requests.request_options import RequestOptions, with_request_options
from conductor.cli.requests.send_and_wait import submit
from conductor.processes.database_access import open_database
from models.ids import is_uuid
from models.messages.requests import DestroyOrphan


def orphan_commands() -> typer.Typer:
    """Return `orphans` with its verbs."""
    orphans = typer.Typer(help="Guests that hosts have and should not: nothing removes them.")
    orphans.command("list")(list_all)
    orphans.command("destroy")(with_request_options(destroy))
    return orphans


def list_all(host: HostFilter = None, output: Output = None) -> None:
    """List the guests that are left alone, and why; foreign ones are not ours to remove."""
    with open_database() as here, here.store.read() as uow:
        found = uow.registrations.where(troubled=True)
    rows: list[dict[str, Any]] = [
        {"host": registration.host, "ours": is_uuid(row["name"]), **row}
        for registration in found
        if host in (None, registration.host)
        for row in registration.unexpected
    ]
    show_all(rows, output, lambda: table_of(rows, _COLUMNS))


def destroy(
    guest: Annotated[str, typer.Argument(metavar="GUEST", help="Its id, as `list` shows it.")],
    host: Annotated[str, typer.Option("--host", help="The host that has it.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before.")] = False,
    *,
    options: RequestOptions,
) -> None:
    """Remove a guest with its disks from a host where no instance has it: for good."""
    confirm(f"Remove {guest} with its disks from {host}?", f"removing {guest} from {host}", yes)
    with open_database() as here:
        submit(here, DestroyOrphan.task, {"host": host, "guest_id": guest}, options, guest)


_COLUMNS: Final = (
    ("host", key("host")),
    ("guest", key("name")),
    ("ours", lambda row: "yes" if row["ours"] else "foreign"),
    ("fence", key("fence")),
    ("why it is left alone", key("reason")),
)
