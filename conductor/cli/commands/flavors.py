"""Sizes of instances."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from conductor.cli.arguments import pairs
from conductor.cli.catalogue_commands import Kind, Name, add_group, define
from conductor.cli.rendering.output import Output
from conductor.cli.rendering.text_tables import key

_KIND: Final = Kind(
    "flavor",
    "flavors",
    "Sizes of instances.",
    (
        ("name", key("name")),
        ("vCPUs", key("vcpus")),
        ("memory MiB", key("memory_mb")),
        ("root GiB", key("root_gb")),
        ("ephemeral GiB", key("ephemeral_gb")),
        ("swap MiB", key("swap_mb")),
        ("extra specs", key("extra_specs")),
    ),
)


def add_to(app: typer.Typer) -> None:
    """Add `flavors`."""
    add_group(app, _KIND, create)


def create(
    name: Name,
    vcpus: Annotated[int, typer.Option(help="Virtual CPUs.")],
    memory_mb: Annotated[int, typer.Option(help="Memory in MiB.")],
    root_gb: Annotated[int, typer.Option(help="Root disk in GiB.")] = 0,
    ephemeral_gb: Annotated[int, typer.Option(help="Ephemeral disk in GiB.")] = 0,
    swap_mb: Annotated[int, typer.Option(help="Swap in MiB.")] = 0,
    extra_spec: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Such as hw:cpu_policy=dedicated.")
    ] = None,
    output: Output = None,
) -> None:
    """Create one."""
    body = {
        "name": name,
        "vcpus": vcpus,
        "memory_mb": memory_mb,
        "root_gb": root_gb,
        "ephemeral_gb": ephemeral_gb,
        "swap_mb": swap_mb,
        "extra_specs": pairs(extra_spec, "extra-spec"),
    }
    define(_KIND, body, output)
