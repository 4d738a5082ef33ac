"""Commands that need no system: the fitter and the fleet simulation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from conductor.cli.fit import run_fit
from conductor.settings import read_settings
from models.errors import Rejected

_STDIN = Path("-")


def add_to(app: typer.Typer) -> None:
    """Add `fit` and `simulate`."""
    app.command("fit")(fit)


def fit(
    cases: Annotated[Path, typer.Option(help="One JSON case a line; - is stdin.")],
) -> None:
    """Ask the fitter: one answer a line, in order. Needs no service."""
    read_settings()
    if cases == _STDIN:
        run_fit(sys.stdin, sys.stdout)
        return
    try:
        with cases.open(encoding="utf-8") as lines:
            run_fit(lines, sys.stdout)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise Rejected("file_unreadable", f"cases is {cases}: {reason}", key="cases") from error
