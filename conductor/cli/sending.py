"""How a request leaves: over the broker, or through the database of an embedded system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from conductor.cli.reach import Reach, conductor_lives
from conductor.store.ports import Store, UnitOfWork
from conductor.store.records import OutboxRow
from models.errors import Unreachable
from models.ids import new_operation_id
from models.messages.carrier import Carrier
from models.messages.letters import CONDUCTOR, Letter
from models.messages.requests import parse_request
from tasks.app import make_app
from tasks.carrier import CeleryCarrier

_ALREADY_DUE_S: Final = 2.0


class Inbox:
    """Leaves letters in the outbox of the database, from where the embedded system sweeps them.

    Refuses (`Unreachable`, code `nothing_runs`) when no conductor has been heard of lately, so
    that a request is not carried out surprisingly at some later start.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def send(self, letters: Sequence[Letter]) -> None:
        """Return when the letters are committed; the same letter twice is one."""
        with self._store.begin() as uow:
            refuse_unless_alive(uow)
            for letter in letters:
                uow.outbox.put(_due(letter, uow.now))


def refuse_unless_alive(uow: UnitOfWork) -> None:
    """Raise `Unreachable` when no conductor has been heard of within the last seconds."""
    if not conductor_lives(uow):
        message = "no system is running on this database: start one with `conductor up`"
        raise Unreachable("nothing_runs", message)


def carrier_of(reach: Reach) -> Carrier:
    """Return what takes letters to the system that the settings name."""
    if reach.settings.embedded:
        return Inbox(reach.store)
    return CeleryCarrier(make_app(reach.settings.broker_url))


def send_request(reach: Reach, task: str, body: Mapping[str, Any]) -> str:
    """Check a request by its schema, send it and return its operation id.

    Raises `Rejected` before anything is sent, `Unreachable` when it may not have arrived.
    """
    parse_request(task, body)
    letter = Letter(CONDUCTOR, task, body, new_operation_id())
    carrier_of(reach).send([letter])
    return letter.id


def _due(letter: Letter, now: float) -> OutboxRow:
    return OutboxRow(
        id=letter.id,
        # Nobody else will send it, so the sweeper need not wait for whoever wrote it.
        created_at=now - _ALREADY_DUE_S,
        queue=letter.queue,
        task=letter.task,
        body=letter.body,
        root_id=letter.root_id,
        parent_id=letter.parent_id,
        shown=letter.shown,
    )
