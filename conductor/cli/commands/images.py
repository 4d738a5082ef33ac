"""What instances boot from."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from conductor.cli.arguments import choice, pairs
from conductor.cli.catalogue_commands import Kind, add_group, define
from conductor.cli.local_images import described_source
from conductor.cli.rendering.output import Output
from conductor.cli.rendering.text_tables import key
from conductor.cli.requests.request_options import RequestOptions, with_request_options
from conductor.cli.requests.send_and_wait import submit
from conductor.processes.database_access import open_database
from models.messages.requests import CacheImages

FORMATS: Final = ("raw", "qcow2")
_KIND: Final = Kind(
    "image",
    "images",
    "What instances boot from.",
    (
        ("id", key("id")),
        ("name", lambda row: row.get("name")),
        ("min disk GiB", key("min_disk_gb")),
        ("min memory MiB", key("min_memory_mb")),
        ("format", lambda row: row.get("format")),
        ("source", lambda row: row.get("source")),
        ("properties", key("properties")),
    ),
)


def add_to(app: typer.Typer) -> None:
    """Add `images`."""
    add_group(app, _KIND, create).command("cache")(with_request_options(cache))


def create(
    image: Annotated[str, typer.Argument(metavar="ID", help="Its id.")],
    name: Annotated[str | None, typer.Option(help="A name for people.")] = None,
    image_property: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="KEY=VALUE", help="Such as hw_numa_nodes=2."),
    ] = None,
    min_disk_gb: Annotated[int, typer.Option(help="Smallest root disk in GiB.")] = 0,
    min_memory_mb: Annotated[int, typer.Option(help="Smallest memory in MiB.")] = 0,
    source: Annotated[
        str | None,
        typer.Option(metavar="FILE|URL", help="Its file: here, or file:, http(s):, store:."),
    ] = None,
    image_format: Annotated[
        str | None, typer.Option("--format", help="raw or qcow2; found in a file that is here.")
    ] = None,
    size: Annotated[
        int | None, typer.Option(metavar="BYTES", help="Of the file; found as well.")
    ] = None,
    checksum: Annotated[
        str | None, typer.Option(metavar="sha256:HEX", help="Of the file; found as well.")
    ] = None,
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
    stated: dict[str, Any] = {
        "format": choice(FORMATS, image_format, "format"),
        "checksum": checksum,
        "size_bytes": size,
    }
    given = described_source(source, stated) if source else stated
    define(_KIND, {**body, **given}, output)


def cache(
    aggregate: Annotated[str, typer.Argument(help="The aggregate whose hosts shall have them.")],
    image: Annotated[list[str], typer.Argument(metavar="IMAGE...", help="By id or name.")],
    *,
    options: RequestOptions,
) -> None:
    """Have images on the hosts of an aggregate before instances need them."""
    with open_database() as here:
        submit(here, CacheImages.task, {"aggregate": aggregate, "images": image}, options)
