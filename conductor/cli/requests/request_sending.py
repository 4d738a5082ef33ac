"""How a request leaves: over the broker, or through the database of an embedded system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from conductor.processes.database_access import DatabaseAccess, conductor_lives
from conductor.store import OutboxRow, Store, UnitOfWork
from models.errors import Unreachable
from models.ids import new_operation_id
from models.messages.carrier import Carrier
from models.messages.internal import CONDUCTOR, OutgoingMessage
from models.messages.requests import parse_request
from tasks.app import make_app
from tasks.sending.celery_carrier import CeleryCarrier

_ALREADY_DUE_S: Final = 2.0


class Inbox:
    """Leaves letters in the outbox of the database, from where the embedded system sweeps them.

    Refuses (`Unreachable`, code `nothing_runs`) when no conductor has been heard of lately, so
    that a request is not carried out surprisingly at some later start.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def send(self, outgoing_messages: Sequence[OutgoingMessage]) -> None:
        """Return when the letters are committed; the same letter twice is one."""
        with self._store.begin() as uow:
            refuse_unless_alive(uow)
            for outgoing in outgoing_messages:
                uow.outbox.put(_due(outgoing, uow.now))


def refuse_unless_alive(uow: UnitOfWork) -> None:
    """Raise `Unreachable` when no conductor has been heard of within the last seconds."""
    if not conductor_lives(uow):
        message = "no system is running on this database: start one with `conductor up`"
        raise Unreachable("nothing_runs", message)


def carrier_of(open_database: DatabaseAccess) -> Carrier:
    """Return what takes letters to the system that the settings name."""
    if open_database.settings.embedded:
        return Inbox(open_database.store)
    return CeleryCarrier(make_app(open_database.settings.broker_url))


def send_request(open_database: DatabaseAccess, task: str, body: Mapping[str, Any]) -> str:
    """Check a request by its schema, send it and return its operation id.

    Raises `Rejected` before anything is sent, `Unreachable` when it may not have arrived.
    """
    parse_request(task, body)
    outgoing = OutgoingMessage(CONDUCTOR, task, body, new_operation_id())
    carrier_of(open_database).send([outgoing])
    return outgoing.id


def _due(outgoing: OutgoingMessage, now: float) -> OutboxRow:
    return OutboxRow(
        id=outgoing.id,
        # Nobody else will send it, so the sweeper need not wait for whoever wrote it.
        created_at=now - _ALREADY_DUE_S,
        queue=outgoing.queue,
        task=outgoing.task,
        body=outgoing.body,
        root_id=outgoing.root_id,
        parent_id=outgoing.parent_id,
        shown=outgoing.shown,
    )
