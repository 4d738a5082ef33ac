"""What instances write to their consoles, and where these can be attached to."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer

from conductor.cli.options import DEFAULT_PROJECT, Project
from conductor.cli.rendering.output import Output, show_one
from conductor.cli.rendering.text_tables import fields_of
from conductor.cli.requests.request_sending import send_request
from conductor.cli.requests.wait_display import await_end, verdict
from conductor.cli.store_queries import instance_named
from conductor.exit_codes import say
from conductor.processes.database_access import DatabaseAccess, open_database
from models.errors import Rejected
from models.messages.guests.console_parts import MOST_BYTES
from models.messages.requests import ReadConsole

FOLLOW_EVERY_S: Final = 2.0
_ANSWER_S: Final = 60.0

Named = Annotated[str, typer.Argument(help="The id, or a name that only one has.")]


def console_log(
    instance: Named,
    lines: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many lines.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes.")] = False,
    project: Project = DEFAULT_PROJECT,
    output: Output = None,
) -> None:
    """Print what an instance has written to its console, as its host has it."""
    if follow and output is not None:
        raise Rejected(
            "option_conflict", "--follow prints text: leave --output out", key="--follow"
        )
    with open_database() as here:
        with here.store.read() as uow:
            found = instance_named(uow, instance)
        parts = _parts(here, found.id, project)
        part = next(parts)
        text = "\n".join(part["text"].splitlines()[-lines:])
        row = {"instance": found.id, "host": part["host"], "text": text}
        if output is not None:
            show_one(row, output, lambda: text)
            return
        typer.echo(text)
        while follow:
            time.sleep(FOLLOW_EVERY_S)
            typer.echo(next(parts)["text"], nl=False)


def console(instance: Named, output: Output = None) -> None:
    """Say where the console of an instance can be attached to: on which host, by which command."""
    with open_database() as here, here.store.read() as uow:
        found = instance_named(uow, instance)
        host = uow.hosts.get(found.host or "")
    if host is None:
        message = f"instance is {instance}: it is {found.state.value}, and on no host"
        raise Rejected("no_host", message, key="instance")
    attaches = f"virsh console {found.id}" if host.hypervisor == "libvirt" else None
    row = {"instance": found.id, "host": host.name, "kind": "serial", "command": attaches}
    show_one(row, output, lambda: fields_of(row))


def _parts(here: DatabaseAccess, guest_id: str, project: str) -> Iterator[dict[str, Any]]:
    """Yield the end of a console, then whatever comes; raise `typer.Exit` where that fails."""
    offset: int | None = None
    while True:
        body = {"context": {"project_id": project}, "guest_id": guest_id, "most_bytes": MOST_BYTES}
        if offset is not None:
            body["offset"] = offset
        record = await_end(here.store, send_request(here, ReadConsole.task, body), _ANSWER_S)
        text, code = verdict(record)
        if code:
            say(text)
            raise typer.Exit(code)
        offset = int(record.data["next_offset"])
        yield {"host": record.data["host"], "text": record.data["text"]}
