"""Tables that keep on a narrow terminal what a row is known by, and cut long texts first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

GAP: Final = 2
"""Spaces that stand between two columns."""

SHORT_ID: Final = 8
"""So much of an id is left where whole ones do not fit; commands take it if only one has it."""

_KNOWN_BY: Final = frozenset(
    {"id", "name", "kind", "state", "host", "instance", "source", "target", "old", "new"}
)
"""Titles of what a row is known by; so is whatever stands first."""

_PROSE_FROM: Final = 24
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_LEAST_PROSE, _LEAST_OTHER, _LEAST_KNOWN_BY = 14, 8, 12


class FittedTable:
    """Rows of cells under titles, one line each, or with `fold` as many as their texts need.

    Too narrow a terminal takes first from texts with spaces, then from ids, of which eight
    characters are left, then from what a row is not known by, whose last columns are left out where
    that is not enough, and last from names, states and hosts.
    """

    def __init__(
        self, titles: Sequence[str], lines: Sequence[Sequence[Text]], *, fold: bool = False
    ) -> None:
        self._titles = titles
        self._lines = lines
        self._fold = fold

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table as wide as the console allows."""
        columns = list(zip(*self._lines, strict=True)) or [() for _ in self._titles]
        widths = _fitted(self._titles, columns, options.max_width)
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
        shown = [place for place, width in enumerate(widths) if width]
        for place in shown:
            table.add_column(
                self._titles[place],
                width=widths[place],
                no_wrap=not self._fold,
                overflow="fold" if self._fold else "ellipsis",
            )
        for line in self._lines:
            table.add_row(*(_shortened(line[place], widths[place]) for place in shown))
        yield table


def _fitted(titles: Sequence[str], columns: Sequence[Sequence[Text]], available: int) -> list[int]:
    """Return the width of each column, 0 for one that does not fit."""
    widths = [
        max([len(title), *(cell.cell_len for cell in column)])
        for title, column in zip(titles, columns, strict=True)
    ]
    places = range(len(titles))
    ids = [place for place in places if _holds_ids(columns[place])]
    prose = [p for p in places if p not in ids and _holds_prose(titles[p], columns[p])]
    first = {0} - {*ids, *prose}
    known = {p for p in places if titles[p] in _KNOWN_BY} | first
    others = [p for p in places if p not in (*ids, *prose, *known)]
    known_by = [p for p in places if p not in (*ids, *prose, *others)]
    excess = sum(widths) + GAP * len(widths) - GAP - available
    excess = _take(widths, prose, max(_LEAST_PROSE, _PROSE_FROM), excess)
    if excess > 0:
        for place in ids:
            excess -= widths[place] - max(SHORT_ID, len(titles[place]))
            widths[place] = max(SHORT_ID, len(titles[place]))
        if excess < 0 and prose:
            widths[prose[-1]] -= excess
            excess = 0
    excess = _take(widths, prose, _LEAST_PROSE, excess)
    excess = _take(widths, others, _LEAST_OTHER, excess)
    for place in reversed(others):
        if excess > 0:
            excess -= widths[place] + GAP
            widths[place] = 0
    if excess < 0 and prose:
        widths[prose[-1]] -= excess
        excess = 0
    for some, least in ((known_by, _LEAST_KNOWN_BY), (prose, 1), (known_by, 1)):
        excess = _take(widths, some, least, excess)
    return widths


def _take(widths: list[int], places: Iterable[int], least: int, excess: int) -> int:
    """Narrow these columns, the widest first, by as much as is too much; return what is left.

    `widths` is the caller's own list.
    """
    some = list(places)
    while excess > 0:
        wide = [place for place in some if widths[place] > least]
        if not wide:
            break
        widest = max(wide, key=lambda place: widths[place])
        widths[widest] -= 1
        excess -= 1
    return excess


def _holds_ids(column: Sequence[Text]) -> bool:
    return any(_UUID.fullmatch(cell.plain) for cell in column) and all(
        _UUID.fullmatch(cell.plain) or len(cell.plain) <= SHORT_ID for cell in column
    )


def _holds_prose(title: str, column: Sequence[Text]) -> bool:
    return title not in _KNOWN_BY and any(
        cell.cell_len > _PROSE_FROM and " " in cell.plain for cell in column
    )


def _shortened(cell: Text, width: int) -> Text:
    """Return an id as far as it fits, without the sign that something is missing."""
    if len(cell.plain) > width and _UUID.fullmatch(cell.plain):
        return Text(cell.plain[:SHORT_ID], style=cell.style)
    return cell
