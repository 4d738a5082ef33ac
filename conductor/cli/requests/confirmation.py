"""Asking a person before something is done that cannot be taken back."""

from __future__ import annotations

import sys

import typer

from conductor.exit_codes import say
from models.errors import Rejected


def confirm(question: str, doing: str, yes: bool) -> None:
    """Ask, or with `yes` only say what is being done.

    Raises `Rejected` (`confirmation_missing`) where there is no person to ask, and ends the command
    where that person says no.
    """
    if yes:
        say(doing)
    elif not sys.stdin.isatty():
        raise Rejected("confirmation_missing", f"{doing}: say --yes to do so", key="--yes")
    elif not typer.confirm(question, err=True):
        raise typer.Abort
