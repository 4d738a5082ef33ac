"""Limits of projects and of their users."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from conductor.cli.arguments import pairs
from conductor.cli.catalogue_commands import Kind, add_group, define
from conductor.cli.rendering.output import Output
from conductor.cli.rendering.text_tables import key
from models.errors import Rejected

_SIZES: Final = ("instances", "cores", "memory_mb", "disk_gb")
_COLUMNS: Final = (*_SIZES, "classes", "users")
_KIND: Final = Kind(
    "quota",
    "quotas",
    "Limits of projects and of their users; -1, or not to be named, is no limit.",
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
    class_: Annotated[
        list[str] | None,
        typer.Option("--class", metavar="CLASS=N", help="Of a resource class; repeatable."),
    ] = None,
    user: Annotated[
        list[str] | None,
        typer.Option(metavar="USER:NAME=N", help="Of one user, by size or class; repeatable."),
    ] = None,
    output: Output = None,
) -> None:
    """Set the limits of a project, anew if it has any."""
    body = {
        "name": project,
        "instances": instances,
        "cores": cores,
        "memory_mb": memory_mb,
        "disk_gb": disk_gb,
        "classes": _numbers(class_, "class"),
        "users": _of_users(user),
    }
    define(_KIND, body, output)


def _of_users(given: list[str] | None) -> dict[str, dict[str, Any]]:
    users: dict[str, dict[str, Any]] = {}
    for name, limit in _numbers(given, "user").items():
        user, colon, what = name.rpartition(":")
        if not colon or not user:
            raise Rejected("pair_invalid", f"user is {name}: should be USER:NAME=N", key="user")
        limits = users.setdefault(user, {})
        if what in _SIZES:
            limits[what] = limit
        else:
            limits.setdefault("classes", {})[what] = limit
    return users


def _numbers(given: list[str] | None, field: str) -> dict[str, int]:
    found = {}
    for name, text in pairs(given, field).items():
        if not text.removeprefix("-").isdecimal():
            message = f"{field} is {name}={text}: should be a whole number, -1 for no limit"
            raise Rejected("number_invalid", message, key=field)
        found[name] = int(text)
    return found
