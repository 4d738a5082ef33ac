"""Open and close hosts for instances, declare them dead, remove them; needs no conductor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from conductor.cli.requests.request_sending import run_transaction
from conductor.exit_codes import say
from conductor.hosts import host_administration as rules
from conductor.processes.database_access import open_database
from conductor.store import UnitOfWork

Names = Annotated[list[str], typer.Argument(metavar="HOST...", help="Names of hosts.")]
Reason = Annotated[str | None, typer.Option(help="Why, for `hosts show`.")]


def enable(host: Names) -> None:
    """Open hosts for new instances; a degraded one is cleared."""
    _change(host, lambda uow, name: rules.set_enabled(uow, name, enabled=True, reason=None))
    say(f"enabled: {' '.join(host)}")


def disable(host: Names, reason: Reason = None) -> None:
    """Close hosts for new instances; those there stay."""
    _change(host, lambda uow, name: rules.set_enabled(uow, name, enabled=False, reason=reason))
    say(f"disabled: {' '.join(host)}")


def force_down(host: Names, reason: Reason = None) -> None:
    """Declare hosts dead, so that operations that wait for them go on."""
    _change(host, lambda uow, name: rules.force_down(uow, name, reason))
    say(f"forced down: {' '.join(host)}")


def remove(host: Names) -> None:
    """Remove hosts without allocations."""
    _change(host, rules.remove)
    say(f"removed: {' '.join(host)}")


def _change(names: Sequence[str], change: Callable[[UnitOfWork, str], object]) -> None:
    """Change all hosts in one transaction, or none."""

    def work(uow: UnitOfWork) -> None:
        for name in names:
            change(uow, name)

    with open_database() as here:
        run_transaction(here, work)
