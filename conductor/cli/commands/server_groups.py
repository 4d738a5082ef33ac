"""Rules over the hosts of instances that belong together."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from conductor.cli.catalogue_commands import Kind, Name, add_group, define
from conductor.cli.rendering.output import Output
from conductor.cli.rendering.text_tables import key

_KIND: Final = Kind(
    "server_group",
    "server-groups",
    "Rules over the hosts of instances that belong together.",
    (
        ("name", key("name")),
        ("policy", key("policy")),
        ("most per host", lambda row: row.get("max_server_per_host")),
    ),
)


def add_to(app: typer.Typer) -> None:
    """Add `server-groups`."""
    add_group(app, _KIND, create)


def create(
    name: Name,
    policy: Annotated[
        str, typer.Option(help="affinity, anti-affinity, soft-affinity or soft-anti-affinity.")
    ],
    max_per_host: Annotated[
        int | None, typer.Option(help="Members a host may have under anti-affinity; 1 unless said.")
    ] = None,
    output: Output = None,
) -> None:
    """Create one."""
    body = {"name": name, "policy": policy, "max_server_per_host": max_per_host}
    define(_KIND, body, output)
