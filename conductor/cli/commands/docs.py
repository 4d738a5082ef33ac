"""Print the pages of the documentation that are generated from the code."""

from __future__ import annotations

from typing import Annotated

import typer

from conductor.cli.documents.pages import PAGES
from conductor.cli.rendering.output import write_line
from conductor.settings import read_settings
from models.errors import Rejected


def add_to(app: typer.Typer) -> None:
    """Add `docs`."""
    app.command("docs")(docs)


def docs(
    page: Annotated[str, typer.Argument(help=f"One of: {', '.join(PAGES)}.")],
) -> None:
    """Print a page of the documentation as Markdown, as the code that runs has it."""
    read_settings()
    write = PAGES.get(page)
    if write is None:
        raise Rejected("page_unknown", f"page is {page}: one of {', '.join(PAGES)}", key="page")
    write_line(write().rstrip("\n"))
