"""Commands about hardware that need no system: guests, CPU lists, a host's settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from conductor.cli.cases.guest_cases import answer_guest
from conductor.cli.cases.host_config_cases import answer_host_config
from conductor.cli.cases.json_lines import answer_file
from conductor.cli.rendering.output import Format, Output, console, format_of, write_line
from conductor.settings import read_settings
from models.hardware import cpus_of, format_cpu_list, parse_cpu_list

Cases = Annotated[Path, typer.Option(help="One JSON case a line; - is stdin.")]


def add_to(app: typer.Typer) -> None:
    """Add `guest`, `host-config` and `cpuset`."""
    app.command("guest")(guest)
    app.command("host-config")(host_config)
    lists = typer.Typer(help="Read and write CPU lists such as 1-4,^3,6.", no_args_is_help=True)
    lists.command("parse")(parse)
    lists.command("format")(format_)
    app.add_typer(lists, name="cpuset")


def guest(cases: Cases) -> None:
    """Ask what flavor and image mean together: one answer a line, in order. Needs no service."""
    read_settings()
    answer_file(cases, answer_guest)


def host_config(cases: Cases) -> None:
    """Ask what CPU sets and reserved pages mean: one answer a line. Needs no service."""
    read_settings()
    answer_file(cases, answer_host_config)


def parse(
    specs: Annotated[list[str], typer.Argument(metavar="SPEC...", help="Such as 1-4,^3,6.")],
    output: Output = None,
) -> None:
    """Print the CPUs of each list; as JSON one sorted array a line."""
    lists = {spec: cpus_of(parse_cpu_list(spec)) for spec in specs}
    if format_of(output) is Format.TABLE:
        console().print(_table(lists))
    else:
        for spec in specs:
            write_line(json.dumps(lists[spec]))


def format_(
    cpus: Annotated[list[str], typer.Argument(metavar="CPUS...", help="Numbers or lists.")],
    no_ranges: Annotated[bool, typer.Option("--no-ranges", help="Write 1,2,3, not 1-3.")] = False,
    output: Output = None,
) -> None:
    """Print CPUs as one sorted list: bare text, so that it can go where a list is wanted."""
    text = format_cpu_list(parse_cpu_list(",".join(cpus)), ranges=not no_ranges)
    bare = output in (None, Format.TABLE)
    write_line(text if bare else json.dumps(text))


def _table(lists: Mapping[str, Sequence[int]]) -> Table:
    table = Table("list", "how many", "CPUs")
    for spec, cpus in lists.items():
        table.add_row(Text(spec), str(len(cpus)), ", ".join(map(str, cpus)))
    return table
