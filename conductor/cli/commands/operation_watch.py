"""Follow the events of an operation and of its children until it ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Final

import typer
from rich.text import Text

from conductor.cli.options import Timeout
from conductor.cli.rendering.json_views import event_view
from conductor.cli.rendering.output import Format, Output, format_of, write_lines
from conductor.cli.rendering.output import console as stdout_console
from conductor.cli.rendering.text_tables import clock_time
from conductor.cli.requests.wait_display import DEFAULT_TIMEOUT_S, verdict
from conductor.cli.store_queries import chunks, operation_of
from conductor.exit_codes import say
from conductor.processes.database_access import DatabaseAccess, open_database
from models.errors import Unreachable
from models.json_types import JsonDict
from models.units import seconds_text

OperationId = Annotated[str, typer.Argument(metavar="OPERATION", help="The operation's id.")]
_POLL_S: Final = 0.2
_ARRIVES_WITHIN_S: Final = 3.0


def watch(
    operation: OperationId, timeout: Timeout = DEFAULT_TIMEOUT_S, output: Output = None
) -> None:
    """Print the events of an operation and of its children as they happen, until it ends."""
    form = format_of(output)
    with open_database() as here:
        _await_acceptance(here, operation, timeout)
        for rows in _new_events(here, operation, timeout):
            if form is Format.TABLE:
                for row in rows:
                    stdout_console().print(_line(row), soft_wrap=True)
            else:
                write_lines(rows)
        with here.store.read() as uow:
            text, code = verdict(operation_of(uow, operation))
    if code:
        say(text)
        raise typer.Exit(code)


def _await_acceptance(here: DatabaseAccess, operation_id: str, timeout_s: float) -> None:
    """Wait a moment for a request that has just been sent."""
    deadline = time.monotonic() + min(timeout_s, _ARRIVES_WITHIN_S)
    while time.monotonic() < deadline:
        with here.store.read() as uow:
            if uow.operations.get(operation_id.lower()) is not None:
                return
        time.sleep(_POLL_S)


def _new_events(
    here: DatabaseAccess, operation_id: str, timeout_s: float
) -> Iterator[list[JsonDict]]:
    """Yield the events that are new, again and again, until the operation has ended."""
    deadline = time.monotonic() + timeout_s
    printed: set[int | None] = set()
    while True:
        with here.store.read() as uow:
            record = operation_of(uow, operation_id)
            family = [record, *uow.operations.where(parent_id=record.id)]
            kinds = {operation.id: operation.kind for operation in family}
            events = [e for ids in chunks(list(kinds)) for e in uow.events.where(operation_id=ids)]
        fresh = sorted((e for e in events if e.id not in printed), key=lambda event: event.at)
        printed.update(event.id for event in fresh)
        yield [event_view(event, kinds[event.operation_id]) for event in fresh]
        if record.state.ended:
            return
        if time.monotonic() >= deadline:
            message = f"operation {record.id} has not ended within {seconds_text(timeout_s)}"
            raise Unreachable("timed_out", f"{message}: it is {record.state.value}")
        time.sleep(_POLL_S)


def _line(row: JsonDict) -> Text:
    return Text.assemble(
        (f"{clock_time(row['at'])} ", "dim"),
        (f"{row['kind']} {row['operation_id'][:8]} ", "cyan"),
        (f"{row['event']} ", "bold"),
        row["detail"],
    )
