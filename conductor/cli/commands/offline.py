"""Ask the fitter, without any system."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from conductor.cli.cases.fit_cases import answer_fit
from conductor.cli.cases.json_lines import answer_file
from conductor.settings import read_settings


def add_to(app: typer.Typer) -> None:
    """Add `fit`."""
    app.command("fit")(fit)


def fit(
    cases: Annotated[Path, typer.Option(help="One JSON case a line; - is stdin.")],
) -> None:
    """Ask the fitter: one answer a line, in order. Needs no service."""
    read_settings()
    answer_file(cases, answer_fit)
