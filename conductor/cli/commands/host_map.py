"""Draw hosts as pictures."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group

from conductor.cli.rendering.json_views import host_view
from conductor.cli.rendering.output import Format, Output, console, show_all
from conductor.cli.rendering.render_host import host_picture, key_line
from conductor.cli.store_queries import guests_of, host_statuses_of, hosts_named
from conductor.processes.database_access import open_database
from conductor.store import Host


def draw(
    host: Annotated[
        list[str] | None, typer.Argument(metavar="HOST...", help="These only, else all of them.")
    ] = None,
    output: Output = None,
) -> None:
    """Draw hosts: NUMA cells, cores and threads coloured by instance, memory and huge pages."""
    with open_database() as here, here.store.read() as uow:
        found = hosts_named(uow, host) if host else sorted(uow.hosts.where(), key=_name_of)
        statuses = host_statuses_of(uow, found, here.settings.down_after_s)
        guests = {found_host.name: guests_of(uow, found_host.name) for found_host in found}
    rows = [host_view(status) for status in statuses]
    pictures = [
        host_picture(status.host, guests[status.host.name], row["state"])
        for status, row in zip(statuses, rows, strict=True)
    ]
    if (output or Format.TABLE) is Format.TABLE:
        console().print(Group(*pictures, key_line()))
    else:
        show_all(rows, output, Group)


def _name_of(host: Host) -> str:
    return host.name
