"""Which database this is, and how far it has got.

A database has an id, made with its tables, and a generation that grows while conductors run. Every
instruction carries the id, every canary both; a worker obeys the first database that it hears of,
keeps its id and newest generation in its journal, and says so with each heartbeat. So a conductor
with an empty or a wrong database, or with an older copy that was restored, finds out from every
host that knows better, and none of these obeys it until an operator decides (`hosts
trust-database`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from conductor.store.ports import UnitOfWork
from conductor.store.records import Identity
from models.errors import Broken

GENERATION_S: Final = 60.0
"""How long one generation lasts: a copy that is older than this is known for one."""


def identity_of(uow: UnitOfWork) -> Identity:
    """Return the identity of the database; raise `Broken` (`identity_missing`) without one."""
    found = uow.identity.where(limit=1)
    if not found:
        raise Broken("identity_missing", "this database has no identity: `conductor db upgrade`")
    return found[0]


def raise_generation(uow: UnitOfWork) -> None:
    """Count one more generation once the last has lasted long enough."""
    if uow.now - identity_of(uow).raised_at < GENERATION_S:
        return
    known = uow.identity.lock(identity_of(uow).id)
    if known is not None and uow.now - known.raised_at >= GENERATION_S:
        uow.identity.save(replace(known, generation=known.generation + 1, raised_at=uow.now))
