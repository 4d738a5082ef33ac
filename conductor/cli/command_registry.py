"""Which module holds which command: only what is asked for is loaded.

A compute worker's process so never holds the database's code, and `fit` answers in a fraction of
the time that loading everything takes.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Final

import typer

_HOME: Final = "conductor.cli.commands."
DISTRIBUTION: Final = "vm-conductor"

MODULES: Final[Mapping[str, str]] = {
    "demo": "demo",
    "up": "up",
    "build": "build_and_power",
    "delete": "delete",
    "start": "build_and_power",
    "stop": "build_and_power",
    "migrate": "moving",
    "resize": "moving",
    "confirm": "moving",
    "revert": "moving",
    "live-migrate": "moving",
    "rebuild": "moving",
    "evacuate": "moving",
    "shelve": "moving",
    "unshelve": "moving",
    "operations": "operations",
    "explain": "explain",
    "what-if": "whatif",
    "capacity": "whatif",
    "migrations": "migrations",
    "dead-letters": "dead_letters",
    "instances": "instances",
    "hosts": "hosts",
    "flavors": "flavors",
    "images": "images",
    "aggregates": "aggregates",
    "zones": "zones",
    "server-groups": "server_groups",
    "quotas": "quotas",
    "placement": "placement",
    "health": "health",
    "fit": "offline",
    "guest": "hardware",
    "cpuset": "hardware",
    "host-config": "hardware",
    "simulate": "simulation",
    "schema": "message_schemas",
    "docs": "docs",
    "serve": "serve",
    "flower": "flower",
    "metrics": "metrics",
    "db": "database",
}
"""First word of a command line to the module that adds it, in the order of the help."""


def command_line(words: Sequence[str]) -> typer.Typer:
    """Return an application that knows the command named first, or else all of them."""
    first = next((word for word in words if not word.startswith("-")), None)
    wanted = MODULES.get(first) if first is not None and words[0] == first else None
    app = typer.Typer(
        help="A control plane for virtual machines: build them, explain placements, draw hosts.",
        no_args_is_help=True,
        add_completion=wanted is None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    for module in dict.fromkeys([wanted] if wanted else MODULES.values()):
        importlib.import_module(_HOME + module).add_to(app)
    return app


def _print_version(given: bool) -> None:
    if given:
        try:
            release = version(DISTRIBUTION)
        except PackageNotFoundError:
            release = "of a checkout that is not installed"
        print(f"conductor {release}")
        raise typer.Exit


def _root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Say which release this is."
        ),
    ] = False,
) -> None:
    """A control plane for virtual machines: build them, explain placements, draw hosts.

    Settings come from CONDUCTOR_* variables; without a broker everything runs in one process,
    started by `conductor up`. --debug, anywhere, shows where a failure came from.
    """
