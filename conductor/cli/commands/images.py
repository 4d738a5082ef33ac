"""What instances boot from."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from conductor.cli.catalogue import Kind, add_group, define
from conductor.cli.output import Output
from conductor.cli.tables import key
from conductor.cli.words import pairs

_KIND: Final = Kind(
    "image",
    "images",
    "What instances boot from.",
    (
        ("id", key("id")),
        ("name", lambda row: row.get("name")),
        ("min disk GiB", key("min_disk_gb")),
        ("min memory MiB", key("min_memory_mb")),
        ("properties", key("properties")),
    ),
)


def add_to(app: typer.Typer) -> None:
    """Add `images`."""
    add_group(app, _KIND, create)


def create(
    image: Annotated[str, typer.Argument(metavar="ID", help="Its id.")],
    name: Annotated[str | None, typer.Option(help="A name for people.")] = None,
    image_property: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="KEY=VALUE", help="Such as hw_numa_nodes=2."),
    ] = None,
    min_disk_gb: Annotated[int, typer.Option(help="Smallest root disk in GiB.")] = 0,
    min_memory_mb: Annotated[int, typer.Option(help="Smallest memory in MiB.")] = 0,
    output: Output = None,
) -> None:
    """Create one."""
    body = {
        "id": image,
        "name": name,
        "properties": pairs(image_property, "property"),
        "min_disk_gb": min_disk_gb,
        "min_memory_mb": min_memory_mb,
    }
    define(_KIND, body, output)
