"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Project = Annotated[str, typer.Option(help="The project in whose name it is asked.")]
ProjectFilter = Annotated[str | None, typer.Option("--project", help="Only of this project.")]
HostFilter = Annotated[str | None, typer.Option("--host", help="Only on this host.")]
Limit = Annotated[int, typer.Option(min=1, max=100_000, help="At most so many, the newest.")]
Wait = Annotated[bool, typer.Option("--wait", help="Return when the operation has ended.")]
Timeout = Annotated[
    float, typer.Option(min=0.0, help="Seconds to wait at most; exit code 4 after that.")
]
Deadline = Annotated[
    float | None,
    typer.Option("--deadline", help="Seconds after which the operation fails by itself."),
]

DEFAULT_PROJECT = "default"
