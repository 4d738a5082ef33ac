"""The demo: builds, a crash and moves on a simulated fleet, in one process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

from conductor.cli.demo.demo_outcome import Outcome
from conductor.cli.demo.demo_requests import INSTANCES
from conductor.cli.demo.demo_script import run_demo
from conductor.cli.demo.demo_stage import staged
from conductor.cli.demo.demo_system import FLEET_FILE, demo_settings
from conductor.cli.rendering.output import console as stdout_console
from conductor.cli.rendering.render_host import host_picture, key_line
from conductor.exit_codes import DEFECT
from conductor.settings import read_settings

_SVG_WIDTH = 100


def add_to(app: typer.Typer) -> None:
    """Add `demo`."""
    app.command("demo")(demo)


def demo(
    svg: Annotated[
        Path | None, typer.Option(help="Also write the final picture to this file.")
    ] = None,
) -> None:
    """Build hundreds of instances on a simulated fleet, crash a host, draw where they went."""
    settings = demo_settings(read_settings())
    console = stdout_console()
    with staged(console, INSTANCES) as stage:
        outcome = run_demo(settings, stage)
    width = console.width if console.is_terminal else None
    for part in _end(outcome, width):
        console.print(part, soft_wrap=isinstance(part, Text))
    console.print(_next(outcome), soft_wrap=True)
    if svg is not None:
        _save(Group(*_end(outcome, _SVG_WIDTH)), svg)
    if outcome.wrong:
        raise typer.Exit(DEFECT)


def _end(outcome: Outcome, width: int | None) -> Iterator[RenderableType]:
    for drawn in outcome.drawn:
        yield ""
        yield host_picture(drawn.host, drawn.guests)
    yield key_line()
    yield ""
    yield from _refused(outcome, width)
    yield ""
    yield _totals(outcome)
    yield _audit(outcome)


def _refused(outcome: Outcome, width: int | None) -> Iterator[RenderableType]:
    """Return a line a group, cut to `width` where there is one: `operations show` has it all."""
    if not outcome.refused:
        return
    yield Text("could not be placed", style="bold")
    for group in outcome.refused:
        line = Text.assemble(
            f"{group.requests:>3} ", (f"{group.flavor:<11} ", "cyan"), group.reason
        )
        if width is not None:
            line.truncate(width, overflow="ellipsis")
        yield line


def _totals(outcome: Outcome) -> Text:
    status = outcome.status
    rate = status.active / outcome.seconds
    return Text.assemble(
        ("totals  ", "bold"),
        f"{status.active} active in {outcome.seconds:.1f} s ({rate:.0f} builds/s), "
        f"{outcome.retried} on a second host, {status.failed} not placed",
    )


def _audit(outcome: Outcome) -> Text:
    if not outcome.wrong:
        return Text.assemble(
            ("audit   ", "bold"), ("every pin, page and allocation adds up", "green")
        )
    return Text.assemble(("audit   ", "bold"), ("; ".join(outcome.wrong), "bold red"))


def _next(outcome: Outcome) -> Text:
    """Return commands to try, with everything that they need to work."""
    command = _command()
    host = outcome.crashed or outcome.drawn[0].host.name
    lines = [
        (
            "the host that crashed, NUMA cell by NUMA cell",
            f"hosts map {host}",
        ),
        ("every host", "hosts list -o table"),
    ]
    if outcome.refused:
        lines.append(("why this one was refused", f"operations show {outcome.refused[0].example}"))
    if outcome.failed_move:
        lines.append(
            ("the move that failed: its history", f"migrations show {outcome.failed_move}")
        )
    lines += [
        ("what is active", "instances list --state active -o table"),
        ("let the fleet live on", f"up --host {outcome.directory / FLEET_FILE}"),
    ]
    text = Text.assemble("\n", ("try next\n", "bold"))
    text.append(f"  export CONDUCTOR_STATE_DIR={outcome.directory}\n")
    for what, line in lines:
        text.append(f"  # {what}\n", style="dim")
        text.append(f"  {command} {line}\n")
    return text


def _command() -> str:
    """Return how this program was started, as it can be typed again."""
    started = Path(sys.argv[0])
    if started.name != "conductor":
        return "python -m conductor"
    inside = os.path.relpath(started)
    return str(started) if inside.startswith("..") else inside


def _save(end: RenderableType, path: Path) -> None:
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        recorder = Console(
            file=nowhere,
            record=True,
            width=_SVG_WIDTH,
            force_terminal=True,
            color_system="truecolor",
            highlight=False,
        )
        recorder.print(end)
    recorder.save_svg(str(path), title="conductor demo")
