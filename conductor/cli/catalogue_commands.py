"""What flavors, images, aggregates, zones, server groups and quotas have in common as commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from conductor.cli.options import DEFAULT_PROJECT
from conductor.cli.rendering.json_views import entry_view
from conductor.cli.rendering.output import Format, Output, show_all, show_one
from conductor.cli.rendering.text_tables import Column, fields_of, table_of
from conductor.cli.requests.request_sending import send_request
from conductor.cli.requests.wait_display import await_end, verdict
from conductor.exit_codes import say
from conductor.processes.database_access import DatabaseAccess, open_database
from conductor.store import CatalogueEntry
from models.errors import Rejected
from models.messages.requests import DefineEntry, RemoveEntry

Name = Annotated[str, typer.Argument(help="Its name; an image's id.")]
ANSWER_WITHIN_S = 30.0
"""Catalogue changes are one step without a host: longer means that nobody is there."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of entry: its name in messages and on the command line, and its columns."""

    entry: str
    group: str
    help: str
    columns: Sequence[Column]


def add_group(app: typer.Typer, kind: Kind, create: Callable[..., None]) -> typer.Typer:
    """Add a group of `create`, `show`, `list` and `delete`, and return it."""
    group = typer.Typer(help=kind.help)
    group.command("create")(create)
    group.command("show")(_show(kind))
    group.command("list")(_list(kind))
    group.command("delete")(_delete(kind))
    app.add_typer(group, name=kind.group, no_args_is_help=True)
    return group


def define(kind: Kind, body: Mapping[str, Any], output: Format | None) -> None:
    """Request the definition of an entry, wait, and print the entry as it is stored."""
    given = {name: value for name, value in body.items() if value is not None}
    request = {"entry": kind.entry, "body": given}
    with open_database() as here:
        _request_and_wait(here, DefineEntry.task, request)
        entry = _entry(here, kind, str(given.get("id") or given["name"]))
    row = entry_view(entry)
    show_one(row, output, lambda: fields_of(row))


def _show(kind: Kind) -> Callable[..., None]:
    def show(name: Name, output: Output = None) -> None:
        with open_database() as here:
            row = entry_view(_entry(here, kind, name))
        show_one(row, output, lambda: fields_of(row))

    show.__doc__ = "Show one."
    return show


def _list(kind: Kind) -> Callable[..., None]:
    def list_all(output: Output = None) -> None:
        with open_database() as here, here.store.read() as uow:
            rows = [entry_view(entry) for entry in uow.catalogue.where(kind=kind.entry)]
        show_all(rows, output, lambda: table_of(rows, kind.columns))

    list_all.__doc__ = "List them, oldest first."
    return list_all


def _delete(kind: Kind) -> Callable[..., None]:
    def delete(name: Name) -> None:
        with open_database() as here:
            _entry(here, kind, name)
            _request_and_wait(here, RemoveEntry.task, {"entry": kind.entry, "name": name})
        say(f"deleted: {name}")

    delete.__doc__ = "Remove one; instances keep the copies that they were built from."
    return delete


def _entry(here: DatabaseAccess, kind: Kind, name: str) -> CatalogueEntry:
    with here.store.read() as uow:
        entry = uow.catalogue.get(kind.entry, name)
    if entry is None:
        what = kind.entry.replace("_", " ")
        raise Rejected("entry_unknown", f"name is {name}: no such {what}", key="name")
    return entry


def _request_and_wait(here: DatabaseAccess, task: str, request: Mapping[str, Any]) -> None:
    body = {"context": {"project_id": DEFAULT_PROJECT}, **request}
    operation_id = send_request(here, task, body)
    text, code = verdict(await_end(here.store, operation_id, ANSWER_WITHIN_S))
    if code:
        say(text)
        raise typer.Exit(code)
