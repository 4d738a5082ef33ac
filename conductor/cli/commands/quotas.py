"""Limits of projects."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from conductor.cli.catalogue import Kind, add_group, define
from conductor.cli.output import Output
from conductor.cli.tables import key

_COLUMNS: Final = ("instances", "cores", "memory_mb", "disk_gb")
_KIND: Final = Kind(
    "quota",
    "quotas",
    "Limits of projects; -1 is no limit.",
    (("project", key("name")), *((name, key(name)) for name in _COLUMNS)),
)
Limit = Annotated[int, typer.Option(help="-1 is no limit.")]


def add_to(app: typer.Typer) -> None:
    """Add `quotas`."""
    add_group(app, _KIND, create)


def create(
    project: Annotated[str, typer.Argument(help="The project's id.")],
    instances: Limit = -1,
    cores: Limit = -1,
    memory_mb: Limit = -1,
    disk_gb: Limit = -1,
    output: Output = None,
) -> None:
    """Set the limits of a project, anew if it has any."""
    body = {
        "name": project,
        "instances": instances,
        "cores": cores,
        "memory_mb": memory_mb,
        "disk_gb": disk_gb,
    }
    define(_KIND, body, output)
