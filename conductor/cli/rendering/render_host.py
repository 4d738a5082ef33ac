"""A host as a picture in the terminal: a panel a NUMA cell, a column a core, a colour a guest.

Every guest also has a label, so that the picture says the same without colours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.panel import Panel
from rich.style import Style
from rich.table import Table
from rich.text import Text

from conductor.cli.rendering.render_layout import (
    Bar,
    CellMap,
    Guest,
    HostMap,
    Thread,
    Use,
    host_map,
    label_of,
    memory_text,
    shares,
)
from conductor.cli.rendering.text_tables import STYLES
from conductor.placement.resources import capacity
from conductor.store import Host

T = TypeVar("T")

_PALETTE: Final = (
    "#e6a23c",
    "#5fb3f9",
    "#7ac74f",
    "#e4717a",
    "#b48ead",
    "#4ecdc4",
    "#f7d354",
    "#9aa5ff",
    "#ff9f80",
    "#8fd6a6",
    "#d783ff",
    "#c0ca33",
)
_SHORT: Final = {"PCPU": "PCPU", "VCPU": "VCPU", "MEMORY_MB": "MiB", "DISK_GB": "disk GiB"}
_LABEL_WIDTH: Final = 7
_SHORTEST_BAR: Final = 12
_LONGEST_BAR: Final = 30
_WIDEST: Final = 47
_BORDER: Final = 4
_LEGEND_ENTRIES: Final = 24

_TILES: Final = {
    Use.FREE: ("··", "dim"),
    Use.SHARED: ("░░", "cyan"),
    Use.NOBODY: ("  ", ""),
    Use.UNKNOWN: ("??", "bold red"),
}


def host_picture(host: Host, guests: Iterable[Guest], state: str = "") -> RenderableType:
    """Return the picture of a host; it fits itself to the width of the console."""
    return _Picture(host_map(host, guests), _title(host, state))


def _title(host: Host, state: str) -> Text:
    """Return the host's name and what of it is in use, by resource class."""
    title = Text.assemble((host.name, "bold"))
    if state:
        title.append(f" {state}", style=STYLES.get(state, ""))
    shown = [*_SHORT, *sorted(set(host.inventory) - set(_SHORT))]
    for name in (name for name in shown if name in host.inventory):
        used, most = host.used.get(name, 0), capacity(host.inventory[name])
        title.append(f"  {_SHORT.get(name, name)} ", style="dim")
        title.append(f"{used}/{most}")
    return title


class _Picture:
    """Lays the panels out when the width is known."""

    def __init__(self, drawn: HostMap, title: Text) -> None:
        self._map = drawn
        self._title = title

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the title, as many panels side by side as fit, and the legend."""
        frame = _frame(self._map, options.max_width)
        coloured = console.color_system is not None and not console.no_color
        panels = [_panel(cell, frame, coloured) for cell in self._map.cells]
        yield self._title
        grid = Table.grid(padding=0)
        for some in _rows(panels, frame.abreast):
            grid.add_row(*some)
        yield grid
        yield from _legend(self._map, options.max_width)

    def __rich_measure__(self, _console: Console, options: ConsoleOptions) -> Measurement:
        """Take the whole width."""
        return Measurement(options.max_width, options.max_width)


@dataclass(frozen=True, slots=True)
class _Frame:
    """How wide things are, in characters: inside a panel, a thread's tile, a bar."""

    inner: int
    tile: int
    bar: int
    abreast: int


def _frame(drawn: HostMap, width: int) -> _Frame:
    cpus = [thread.cpu for cell in drawn.cells for core in cell.cores for thread in core]
    tile = max(2, len(str(max(cpus, default=0))))
    texts = [len(bar.text) for cell in drawn.cells for bar in cell.bars]
    numbers = max(texts, default=0) + 1
    cores = max((len(cell.cores) for cell in drawn.cells), default=1) * (tile + 1) - 1
    needed = max(min(cores, _WIDEST), _LABEL_WIDTH + _SHORTEST_BAR + numbers)
    abreast = min(max(1, width // (needed + _BORDER)), max(1, len(drawn.cells)))
    inner = max(12, min(width // abreast - _BORDER, max(needed, _WIDEST)))
    bar = min(max(4, inner - _LABEL_WIDTH - numbers), _LONGEST_BAR)
    return _Frame(inner, tile, bar, abreast)


def _panel(cell: CellMap, frame: _Frame, coloured: bool) -> Panel:
    lines: list[Text] = []
    for cores in _rows(cell.cores, max(1, (frame.inner + 1) // (frame.tile + 1))):
        lines += _core_lines(cores, frame.tile)
    lines += [_bar_line(bar, frame.bar, coloured) for bar in cell.bars]
    where = f" · socket {cell.socket}" if cell.socket is not None else ""
    return Panel(
        Group(*lines),
        title=f"NUMA cell {cell.id}{where}",
        title_align="left",
        border_style="dim",
        width=frame.inner + _BORDER,
    )


def _core_lines(cores: Sequence[tuple[Thread, ...]], tile: int) -> Iterator[Text]:
    """Return a line of CPU numbers, then one a thread: a core is a column."""
    numbers = " ".join(f"{core[0].cpu:>{tile}}" for core in cores)
    yield Text(numbers, style="dim")
    for level in range(max(map(len, cores))):
        line = Text()
        for place, core in enumerate(cores):
            line.append(" " if place else "")
            line.append_text(_tile(core[level], tile) if level < len(core) else Text(" " * tile))
        yield line


def _tile(thread: Thread, width: int) -> Text:
    if thread.guest is None:
        text, style = _TILES[thread.use]
        return Text(f"{text:>{width}}"[:width] if width <= 2 else text.rjust(width), style=style)
    label = label_of(thread.guest)
    if thread.use is Use.PINNED:
        return Text(f"{label:^{width}}", style=_solid(thread.guest))
    mark = f"{label.lower()}e" if thread.use is Use.EMULATOR else f"{label.lower()}x"
    return Text(f"{mark:^{width}}"[:width], style=_outline(thread.guest))


def _bar_line(bar: Bar, width: int, coloured: bool) -> Text:
    """Return label, bar and numbers; without colours the bar is made of the guests' labels."""
    line = Text.assemble((f"{bar.label:<{_LABEL_WIDTH}}", "dim"))
    drawn = 0
    for guest, characters in shares(bar, width):
        drawn += characters
        if guest is None:
            line.append("▒" * characters, style="cyan")
        elif coloured:
            line.append("█" * characters, style=_outline(guest))
        else:
            line.append((label_of(guest) * characters)[:characters])
    line.append("·" * (width - drawn), style="dim")
    line.append(f" {bar.text}")
    return line


def _legend(drawn: HostMap, width: int) -> Iterator[Text]:
    shown = drawn.guests[:_LEGEND_ENTRIES]
    entries = [_entry(place, guest) for place, guest in enumerate(shown)]
    if len(drawn.guests) > len(shown):
        entries.append(Text(f"and {len(drawn.guests) - len(shown)} more", style="dim"))
    yield from _filled(entries, width)
    if drawn.unbound:
        vcpus = sum(guest.vcpus for guest in drawn.unbound)
        memory = memory_text(sum(guest.memory_mib for guest in drawn.unbound))
        text = f"and {len(drawn.unbound)} bound to no NUMA cell: {vcpus} vCPU, {memory}"
        yield Text(text, style="dim")


def _filled(entries: Iterable[Text], width: int) -> Iterator[Text]:
    """Return lines of entries, none of them broken."""
    line = Text()
    for entry in entries:
        if line and len(line) + 2 + len(entry) > width:
            yield line
            line = Text()
        line = Text.assemble(line, "  " if line else "", entry)
    if line:
        yield line


def _entry(place: int, guest: Guest) -> Text:
    return Text.assemble((f" {label_of(place)} ", _solid(place)), f" {guest.name}")


def key_line() -> Text:
    """Return what the tiles mean that are no guest's."""
    return Text.assemble(
        ("·· ", "dim"),
        "free   ",
        ("░░ ", "cyan"),
        "shared   ",
        ("ae ", "bold"),
        "emulator threads of A   ",
        ("ax ", "bold"),
        "kept idle for A",
    )


def _solid(place: int) -> Style:
    return Style(color="#101010", bgcolor=_colour(place), bold=True)


def _outline(place: int) -> Style:
    return Style(color=_colour(place))


def _colour(place: int) -> str:
    return _PALETTE[place % len(_PALETTE)]


def _rows(things: Sequence[T], width: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(things), width):
        yield things[start : start + width]
