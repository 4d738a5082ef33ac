"""Send a request and print its operation: the id at once, or the end with `--wait`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import typer

from conductor.cli.rendering.json_views import operation_view
from conductor.cli.rendering.output import Format, show_all, show_one, write_line
from conductor.cli.rendering.text_tables import fields_of, key, table_of
from conductor.cli.requests.request_options import RequestOptions
from conductor.cli.requests.request_sending import send_request
from conductor.cli.requests.wait_display import await_end, verdict
from conductor.cli.store_queries import histories_of
from conductor.exit_codes import NO, say
from conductor.processes.database_access import DatabaseAccess
from models.json_types import Json, JsonDict

_SENT_COLUMNS: Final = tuple((name, key(name)) for name in ("id", "instance", "name"))
_PLAIN: Final = (None, Format.TABLE)


def submit(
    here: DatabaseAccess,
    task: str,
    fields: JsonDict,
    options: RequestOptions,
    typed: str | None = None,
) -> None:
    """Send a request, print its operation's id and, with `--wait`, wait for its end.

    `typed` is how the command line names the instance: errors name it too.
    """
    body = request_body(fields, options)
    operation_id = send_request(here, task, body)
    if not options.wait:
        _print_id(operation_id, options)
        return
    if _plain(options):
        write_line(operation_id)
    record = await_end(here.store, operation_id, options.timeout)
    if not _plain(options):
        with here.store.read() as uow:
            row = operation_view(record, histories_of(uow, [record])[record.id])
        show_one(row, options.output, lambda: fields_of(row))
    text, code = verdict(record)
    say(as_typed(text, body, typed))
    if code:
        raise typer.Exit(code)


def submit_all(
    here: DatabaseAccess, task: str, names: Mapping[str, str], options: RequestOptions
) -> None:
    """Send a request about each instance (id to name), then with `--wait` wait for all.

    Exits 3 when one of them has failed.
    """
    rows: list[JsonDict] = []
    for instance_id, name in names.items():
        body = request_body({"instance_id": instance_id}, options)
        id_ = send_request(here, task, body)
        rows.append({"id": id_, "instance": instance_id, "name": name})
    failed = 0
    if options.wait:
        for row in rows:
            record = await_end(here.store, row["id"], options.timeout)
            row["state"] = record.state.value
            text, code = verdict(record)
            failed += bool(code)
            say(as_typed(text, {"instance_id": row["instance"]}, row["name"]))
    if _plain(options):
        for row in rows:
            write_line(row["id"])
    else:
        show_all(rows, options.output, lambda: table_of(rows, _SENT_COLUMNS))
    if failed:
        raise typer.Exit(NO)


def request_body(fields: Json, options: RequestOptions) -> JsonDict:
    """Return the body of a request: fields, project and deadline, without those unset."""
    body = {"context": {"project_id": options.project}, "deadline_s": options.deadline, **fields}
    return {field: value for field, value in body.items() if value is not None}


def as_typed(text: str, body: JsonDict, typed: str | None) -> str:
    """Return an error with the name that was typed before the first mention of its id."""
    instance_id = body.get("instance_id")
    if not typed or not instance_id or typed.lower() == instance_id:
        return text
    return text.replace(instance_id, f"{typed} ({instance_id})", 1)


def _print_id(operation_id: str, options: RequestOptions) -> None:
    if _plain(options):
        write_line(operation_id)
    else:
        row: dict[str, Any] = {"id": operation_id}
        show_one(row, options.output, lambda: fields_of(row))


def _plain(options: RequestOptions) -> bool:
    """Whether the id alone is printed: unless JSON is requested, also into a pipe."""
    return options.output in _PLAIN
