"""Tables and key-value views for a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from conductor.cli.rendering.narrow_tables import FittedTable
from conductor.exit_codes import printable
from models.json_types import Json

Column = tuple[str, Callable[[Any], Any]]

STYLES: Final[Mapping[str, str]] = {
    "up": "green",
    "active": "green",
    "SUCCEEDED": "green",
    "ok": "green",
    "down": "red",
    "error": "red",
    "FAILED": "red",
    "STUCK": "bold red",
    "away": "red",
    "degraded": "yellow",
    "disabled": "yellow",
    "CANCELLED": "yellow",
    "UNDOING": "yellow",
    "stopped": "dim",
    "deleted": "dim",
}
"""Words that have a colour wherever they stand alone in a cell."""


def table_of(rows: Sequence[Json], columns: Sequence[Column], *, fold: bool = False) -> FittedTable:
    """Return rows as a table of one line each; with `fold`, long texts go on below.

    What a row is known by is kept where the terminal is narrow (see `fitted`).
    """
    cells = [[cell(value(row)) for _, value in columns] for row in rows]
    return FittedTable([title for title, _ in columns], cells, fold=fold)


def fields_of(row: Json, names: Sequence[str] | None = None) -> Table:
    """Return one thing as a list of its fields, nested ones as JSON."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name in names or list(row):
        table.add_row(name, cell(row[name]))
    return table


def cell(value: Any) -> Text:
    """Return a value as a person reads it."""
    if value is None or value in ([], {}, ""):
        return Text("-", style="dim")
    if isinstance(value, str):
        return Text(printable(value), style=STYLES.get(value, ""))
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return Text(printable(" ".join(value)))
    if isinstance(value, dict | list):
        return Text(json.dumps(value))
    return Text(str(value))


def key(name: str) -> Callable[[Json], Any]:
    """Return what reads one field of a row."""
    return lambda row: row[name]


def clock_time(text: str | None) -> str | None:
    """Return a time of the views without date and fraction, as lists show it."""
    return text[11:19] if text else None
