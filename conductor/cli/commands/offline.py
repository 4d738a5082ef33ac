"""Commands that need no system: the fitter and the fleet simulation."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from conductor.cli.fit import run_fit
from conductor.settings import read_settings
from models.errors import Rejected

_STDIN: Final = Path("-")
_TEXT: Final = "utf-8"
_NO_TEXT: Final = "surrogateescape"
"""A line that is no text is answered as malformed, and does not end the run."""


def add_to(app: typer.Typer) -> None:
    """Add `fit` and `simulate`."""
    app.command("fit")(fit)


def fit(
    cases: Annotated[Path, typer.Option(help="One JSON case a line; - is stdin.")],
) -> None:
    """Ask the fitter: one answer a line, in order. Needs no service."""
    read_settings()
    if cases == _STDIN:
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(encoding=_TEXT, errors=_NO_TEXT)
        run_fit(sys.stdin, sys.stdout)
        return
    try:
        lines = cases.open(encoding=_TEXT, errors=_NO_TEXT)
    except OSError as error:
        message = f"cases is {cases}: {error.strerror}"
        raise Rejected("file_unreadable", message, key="cases") from error
    with lines:
        run_fit(lines, sys.stdout)
