"""How every benchmark says what it measured: a table for people, JSON for everything else."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

RESULTS = Path(".benchmarks")


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number; `goal` is what was asked for, as words, where something was."""

    name: str
    value: float
    unit: str
    goal: str = ""


def report(benchmark: str, figures: list[Figure]) -> None:
    """Print the figures as a table and write them to `.benchmarks/<benchmark>.json`."""
    table = Table(title=f"{benchmark} ({machine()})", title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("unit")
    table.add_column("goal")
    for figure in figures:
        table.add_row(figure.name, number(figure.value), figure.unit, figure.goal)
    Console(width=110).print(table)
    RESULTS.mkdir(exist_ok=True)
    written = {
        "benchmark": benchmark,
        "machine": machine(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "figures": [asdict(figure) for figure in figures],
    }
    (RESULTS / f"{benchmark}.json").write_text(json.dumps(written, indent=1) + "\n")


def machine() -> str:
    """Describe the machine in a few words, its load included: a busy one measures others' work."""
    cores = os.cpu_count() or 0
    load = os.getloadavg()[0]
    return (
        f"{cores} cores, Python {platform.python_version()}, {platform.machine()}, load {load:.1f}"
    )


def number(value: float) -> str:
    """Return a figure as people read it."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"
