"""Open and close hosts for instances, declare them dead, remove them; needs no conductor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from conductor.cli.requests.confirmation import confirm
from conductor.cli.requests.request_sending import run_transaction
from conductor.exit_codes import say
from conductor.hosts import database_trust
from conductor.hosts import host_administration as rules
from conductor.processes.database_access import open_database
from conductor.store import UnitOfWork
from models.errors import Rejected

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


def trust_database(
    host: Annotated[
        list[str] | None, typer.Argument(metavar="[HOST]...", help="Names of hosts.")
    ] = None,
    all_hosts: Annotated[bool, typer.Option("--all", help="All that do not obey it.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before.")] = False,
) -> None:
    """Have hosts obey this database, though they know another one, or a newer state of this one.

    Until then they refuse all that it asks of them: it may be empty, wrong, or an older copy.
    """
    if bool(host) == all_hosts:
        raise Rejected("hosts_missing", "HOST: name hosts, or say --all", key="HOST")
    with open_database() as here:
        with here.store.read() as uow:
            count = len(host) if host else len(database_trust.distrusting(uow))
        if not count:
            say("every host obeys this database: nothing is changed")
            return
        what = f"{count} host{'s' if count != 1 else ''} that know another or a newer one"
        confirm(f"Trust this database on {what}?", f"trusting this database on {what}", yes)
        notified: list[str] = []
        run_transaction(
            here, lambda uow: notified.extend(database_trust.trust_database(uow, host or None))
        )
    say(f"will obey this database: {' '.join(notified)}")


def _change(names: Sequence[str], change: Callable[[UnitOfWork, str], object]) -> None:
    """Change all hosts in one transaction, or none."""

    def work(uow: UnitOfWork) -> None:
        for name in names:
            change(uow, name)

    with open_database() as here:
        run_transaction(here, work)
