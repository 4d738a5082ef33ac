"""Which database a worker obeys: the first that it hears of, until an operator decides otherwise.

A database that was lost, replaced or restored from an older copy says wrong things of guests that
are well. So an instruction counts only if it comes from the database that the worker knows, and
none does once a later canary has told of an older generation than an earlier one.
"""

from __future__ import annotations

from dataclasses import replace

from models.messages.internal import Canary, Obeyed, TrustedDatabase
from workers.journal.entries import Obeys


def after_canary(known: Obeys | None, canary: Canary) -> Obeys | None:
    """Return what is obeyed once a canary was heard: `known` itself where nothing is new.

    Canaries may come twice or late: one that was sent before the newest that is known says nothing.
    """
    if canary.database is None or (known is not None and canary.database != known.database):
        return known
    fresh = Obeys(canary.database, canary.generation, canary.sent_at)
    if known is None:
        return fresh
    if known.outdated or canary.generation == known.generation:
        return known
    if canary.generation > known.generation:
        return fresh
    return replace(known, outdated=True) if canary.sent_at > known.heard_at else known


def after_instruction(known: Obeys | None, database: str | None) -> Obeys | None:
    """Return what is obeyed once an instruction of this database has come: the first counts."""
    return Obeys(database, 0) if known is None and database is not None else known


def why_disobeyed(known: Obeys | None, database: str | None) -> str | None:
    """Return why an instruction of this database is not obeyed; None if it is."""
    if known is None or (known.database == database and not known.outdated):
        return None
    if known.database == database:
        return f"the database was at generation {known.generation}, and is at an older one"
    return f"it comes from the database {(database or 'unnamed')[:8]}, not {known.database[:8]}"


def after_decision(known: Obeys | None, decision: TrustedDatabase) -> Obeys | None:
    """Return what is obeyed once an operator has decided; `known` where that was about another."""
    if known is None or known.database != decision.instead_of:
        return known
    return Obeys(decision.database, decision.generation)


def obeyed(known: Obeys | None) -> Obeyed | None:
    """Return what heartbeats and registrations say of it."""
    if known is None:
        return None
    return Obeyed(database=known.database, generation=known.generation, outdated=known.outdated)
