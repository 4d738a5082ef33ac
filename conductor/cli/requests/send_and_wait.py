"""Send a request and follow it up: the id at once, or the end when it is waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from conductor.cli.rendering.json_views import operation_view
from conductor.cli.rendering.output import Format, show_one, write_line
from conductor.cli.rendering.text_tables import fields_of
from conductor.cli.requests.request_sending import send_request
from conductor.cli.requests.wait_display import await_end, verdict
from conductor.cli.store_queries import stories_of
from conductor.exit_codes import say
from conductor.processes.database_access import DatabaseAccess
from models.json_types import JsonDict

Which = Annotated[
    str, typer.Argument(metavar="INSTANCE", help="The id, or a name that only one has.")
]


_PLAIN: Final = (None, Format.TABLE)


@dataclass(frozen=True, slots=True)
class Manner:
    """How a request is followed up."""

    wait: bool
    timeout_s: float
    output: Format | None


def ask_for(
    here: DatabaseAccess, task: str, body: JsonDict, manner: Manner, typed: str | None = None
) -> None:
    """Send a request, print its operation's id and, when asked to, wait for its end.

    `typed` is what the instance was called on the command line: complaints name that too.
    """
    operation_id = send_request(here, task, without_unset(body))
    if not manner.wait:
        _print_id(operation_id, manner)
        return
    if _plain(manner):
        write_line(operation_id)
    record = await_end(here.store, operation_id, manner.timeout_s)
    if not _plain(manner):
        with here.store.read() as uow:
            row = operation_view(record, stories_of(uow, [record])[record.id])
        show_one(row, manner.output, lambda: fields_of(row))
    text, code = verdict(record)
    say(as_typed(text, body, typed))
    if code:
        raise typer.Exit(code)


def as_typed(text: str, body: JsonDict, typed: str | None) -> str:
    """Return a complaint with the name that was typed beside the first mention of its id."""
    instance_id = body.get("instance_id")
    if not typed or not instance_id or typed.lower() == instance_id:
        return text
    return text.replace(instance_id, f"{typed} ({instance_id})", 1)


def _print_id(operation_id: str, manner: Manner) -> None:
    if _plain(manner):
        write_line(operation_id)
    else:
        row: dict[str, Any] = {"id": operation_id}
        show_one(row, manner.output, lambda: fields_of(row))


def _plain(manner: Manner) -> bool:
    """Whether the id alone is printed: unless JSON is asked for, also into a pipe."""
    return manner.output in _PLAIN


def without_unset(body: JsonDict) -> JsonDict:
    """Return a body without the fields that nobody gave."""
    return {field: value for field, value in body.items() if value is not None}
