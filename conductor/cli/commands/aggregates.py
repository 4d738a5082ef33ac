"""Hosts that share metadata."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from conductor.cli.arguments import pairs
from conductor.cli.catalogue_commands import Kind, Name, add_group, define
from conductor.cli.rendering.output import Output
from conductor.cli.rendering.text_tables import key

_KIND: Final = Kind(
    "aggregate",
    "aggregates",
    "Hosts that share metadata, which flavors and images can ask for.",
    (("name", key("name")), ("hosts", key("hosts")), ("metadata", key("metadata"))),
)


def add_to(app: typer.Typer) -> None:
    """Add `aggregates`."""
    add_group(app, _KIND, create)


def create(
    name: Name,
    host: Annotated[list[str] | None, typer.Option(help="A member; repeatable.")] = None,
    metadata: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE")] = None,
    output: Output = None,
) -> None:
    """Create one."""
    body = {"name": name, "hosts": host or [], "metadata": pairs(metadata, "metadata")}
    define(_KIND, body, output)
