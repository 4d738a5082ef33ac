"""Availability zones."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from conductor.cli.catalogue_commands import Kind, Name, add_group, define
from conductor.cli.rendering.output import Output
from conductor.cli.rendering.text_tables import key

_KIND: Final = Kind(
    "zone",
    "zones",
    "Availability zones: hosts that users know by one name.",
    (("name", key("name")), ("hosts", key("hosts"))),
)


def add_to(app: typer.Typer) -> None:
    """Add `zones`."""
    add_group(app, _KIND, create)


def create(
    name: Name,
    host: Annotated[list[str] | None, typer.Option(help="A member; repeatable.")] = None,
    output: Output = None,
) -> None:
    """Create one."""
    define(_KIND, {"name": name, "hosts": host or []}, output)
