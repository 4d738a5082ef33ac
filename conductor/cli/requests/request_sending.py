"""How a request leaves: over the broker, or through the database of an embedded system."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from conductor.processes.database_access import DatabaseAccess, conductor_lives
from conductor.store import OutboxRow, Store, UnitOfWork
from conductor.transactions import Transactions
from models.errors import Unreachable
from models.ids import new_operation_id
from models.messages.carrier import Carrier
from models.messages.internal import CONDUCTOR, OutgoingMessage
from models.messages.requests import parse_request

_ALREADY_DUE_S: Final = 2.0


class Inbox:
    """Writes messages into the outbox of the database, for the sweeper of the embedded system.

    Refuses (`Unreachable`, code `nothing_runs`) without a recent heartbeat of a conductor, so that
    a request is not carried out unexpectedly at some later start.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def send(self, messages: Sequence[OutgoingMessage]) -> None:
        """Return when the messages are committed; the same message twice is one."""
        with self._store.begin() as uow:
            refuse_unless_alive(uow)
            for outgoing in messages:
                uow.outbox.put(_due(outgoing, uow.now))


def refuse_unless_alive(uow: UnitOfWork) -> None:
    """Raise `Unreachable` when there is no heartbeat of a conductor within the last seconds."""
    if not conductor_lives(uow):
        message = "no system is running on this database: start one with `conductor up`"
        raise Unreachable("nothing_runs", message)


def carrier_of(here: DatabaseAccess) -> Carrier:
    """Return what carries messages to the system that the settings name."""
    if here.settings.embedded:
        return Inbox(here.store)
    # Celery costs a third of a second to import, and an embedded system has no broker.
    from tasks.app import make_app  # noqa: PLC0415 - see above
    from tasks.sending.celery_carrier import CeleryCarrier  # noqa: PLC0415 - see above

    return CeleryCarrier(make_app(here.settings.broker_url))


def run_transaction(here: DatabaseAccess, work: Callable[[UnitOfWork], object]) -> None:
    """Run one transaction, then publish the messages that it has written into the outbox."""
    Transactions(here.store, carrier_of(here)).run(work)


def send_request(here: DatabaseAccess, task: str, body: Mapping[str, Any]) -> str:
    """Check a request by its schema, send it and return its operation id.

    Raises `Rejected` before anything is sent, `Unreachable` when it may not have arrived.
    """
    parse_request(task, body)
    outgoing = OutgoingMessage(CONDUCTOR, task, body, new_operation_id())
    carrier_of(here).send([outgoing])
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
