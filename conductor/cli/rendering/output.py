"""Data on stdout in the format requested for, everything else on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Final, TypeVar

import typer
from rich.console import Console, RenderableType

from conductor.exit_codes import say
from models.json_types import Json

_UNCUT: Final = 1_000
"""Width of a table that goes into a pipe: nothing of it is cut."""

T = TypeVar("T")


class Format(StrEnum):
    """How data is printed."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


Output = Annotated[
    Format | None,
    typer.Option("-o", "--output", help="Default: table on a terminal, JSON otherwise."),
]


def format_of(requested: Format | None) -> Format:
    """Return the requested format: by default a table on a terminal, else JSON."""
    if requested is not None:
        return requested
    return Format.TABLE if sys.stdout.isatty() else Format.JSON


def newest(found: Sequence[T], limit: int) -> Sequence[T]:
    """Return the last `limit` of them; say on stderr when there are more, and how to see them."""
    if len(found) > limit:
        say(f"only the newest {limit} of {len(found)} are shown: --limit N shows N")
    return found[-limit:]


def show_all(
    rows: Sequence[Json], requested: Format | None, table: Callable[[], RenderableType]
) -> None:
    """Print a list: an array, one object a line, or a table."""
    form = format_of(requested)
    if form is Format.TABLE:
        console(_UNCUT).print(table())
    elif form is Format.JSON:
        write_line(json.dumps(rows, indent=2 if sys.stdout.isatty() else None))
    else:
        write_lines(rows)


def show_one(row: Json, requested: Format | None, view: Callable[[], RenderableType]) -> None:
    """Print one thing: an object, or what a person reads of it."""
    form = format_of(requested)
    if form is Format.TABLE:
        console(_UNCUT).print(view())
    else:
        pretty = form is Format.JSON and sys.stdout.isatty()
        write_line(json.dumps(row, indent=2 if pretty else None))


def write_lines(rows: Iterable[Json]) -> None:
    """Print one JSON object a line."""
    for row in rows:
        write_line(json.dumps(row))


def write_line(text: str) -> None:
    """Print one line of data at once, so that a reader of a pipe need not wait for the next."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def console(width_of_pipes: int | None = None) -> Console:
    """Return the console of stdout: data for people; a pipe has no width of its own."""
    width = None if sys.stdout.isatty() else width_of_pipes
    # Not highlighted: what numbers and ids look like is decided where they are printed.
    return Console(file=sys.stdout, highlight=False, width=width)


def side_console() -> Console:
    """Return the console of stderr: progress, remarks."""
    return Console(file=sys.stderr, highlight=False)
