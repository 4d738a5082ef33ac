"""A whole fleet and a request trace, without any service."""

from __future__ import annotations

import typer

from conductor.cli.cases.simulate_trace import simulate


def add_to(app: typer.Typer) -> None:
    """Add `simulate`."""
    app.command("simulate")(simulate)
