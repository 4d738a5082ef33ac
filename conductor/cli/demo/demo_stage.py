"""How the demo is shown while it runs: a live picture on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from conductor.cli.demo.demo_progress import OperationStatus
from conductor.placement.resources import capacity
from conductor.store import Host

_PLAIN_EVERY_S: Final = 1.0
_FRAMES_PER_S: Final = 10
_LONGEST_BAR: Final = 20
_AROUND_BARS: Final = 59
"""Width of a line of the fleet without its three bars."""

_CLASSES: Final = (
    ("PCPU", "pcpu", "#5fb3f9"),
    ("VCPU", "vcpu", "#7ac74f"),
    ("MEMORY_MB", "mem", "#e6a23c"),
)


class Stage(Protocol):
    """Where the demo is shown."""

    def print_line(self, line: Text) -> None:
        """Show a line that stays."""

    def show(self, status: OperationStatus, down: frozenset[str]) -> None:
        """Show the progress."""


@contextmanager
def staged(console: Console, total: int) -> Iterator[Stage]:
    """Return the stage that suits the console."""
    if not console.is_terminal:
        yield _Lines(console, total)
        return
    with Live(console=console, refresh_per_second=_FRAMES_PER_S, transient=True) as live:
        yield _Picture(live, total)


class _Lines:
    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._started = self._shown = time.monotonic()

    def print_line(self, line: Text) -> None:
        """Print the line."""
        self._console.print(line, soft_wrap=True)

    def show(self, status: OperationStatus, down: frozenset[str]) -> None:
        """Print one line a second."""
        now = time.monotonic()
        if now - self._shown >= _PLAIN_EVERY_S:
            self._shown = now
            away = f", down: {' '.join(sorted(down))}" if down else ""
            text = f"{now - self._started:5.1f} s  {_counts(status, self._total)}{away}"
            self._console.print(text, soft_wrap=True)


class _Picture:
    def __init__(self, live: Live, total: int) -> None:
        self._live = live
        self._total = total
        self._started = time.monotonic()

    def print_line(self, line: Text) -> None:
        """Print the line above the picture."""
        self._live.console.print(line)

    def show(self, status: OperationStatus, down: frozenset[str]) -> None:
        """Draw the picture anew."""
        seconds = time.monotonic() - self._started
        width = self._live.console.width
        head = Table.grid(padding=(0, 1))
        head.add_row(
            Text("builds", style="bold"),
            ProgressBar(total=self._total, completed=status.ended, width=max(10, width - 70)),
            f"{_counts(status, self._total)}  {seconds:.1f} s",
        )
        self._live.update(Group("", head, "", _fleet_table(status, down, width)))


def _counts(status: OperationStatus, total: int) -> str:
    return f"{status.active} of {total} active, {status.building} building, {status.failed} refused"


def _fleet_table(status: OperationStatus, down: frozenset[str], width: int) -> RenderableType:
    bar = max(4, min(_LONGEST_BAR, (width - _AROUND_BARS) // len(_CLASSES)))
    table = Table.grid(padding=(0, 1))
    for _ in range(len(_CLASSES) + 2):
        table.add_column(no_wrap=True)
    for host in status.hosts:
        working = status.waiting.get(host.name, 0)
        table.add_row(
            _name(host, down),
            *(_use(host, *use, bar) for use in _CLASSES),
            Text(f"{working:>2} spawning" if working else "", style="dim"),
        )
    return table


def _name(host: Host, down: frozenset[str]) -> Text:
    if host.name in down:
        return Text(f"✗ {host.name}", style="bold red")
    return Text.assemble(("● ", "green"), host.name)


def _use(host: Host, resource_class: str, label: str, colour: str, bar: int) -> Text:
    inventory = host.inventory.get(resource_class)
    total = capacity(inventory) if inventory else 0
    used = host.used.get(resource_class, 0)
    full = min(bar, -(-used * bar // total)) if total else 0
    return Text.assemble(
        ("█" * full, colour),
        ("·" * (bar - full), "dim"),
        (f" {label}", "dim"),
        f" {used * 100 // total if total else 0:>3}%",
    )
