"""Periodic work of a conductor: overdue operations, the outbox, old moves and old records."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import structlog

from conductor.liveness import ECHO_EVERY_S
from conductor.reaper import reap
from conductor.service_options import ServiceSettings
from conductor.store import DeadLetter, Heartbeat, Store, UnitOfWork, raise_generation
from conductor.transactions import Transactions
from conductor.undelivered import unsendable
from conductor.upkeep import PeriodicWork, forget_processes
from models.errors import Unreachable
from models.lifecycle import MigrationState
from models.messages.carrier import Carrier
from models.messages.internal import CONDUCTOR, ECHO, HEARTBEAT, REPORTS, OutgoingMessage
from models.messages.internal import Heartbeat as HeartbeatMessage
from models.messages.requests import ConfirmResize

log = structlog.get_logger(__name__)
DELETED_AT_ONCE = 1_000


class Conductor(Protocol):
    """What periodic work calls of the conductor."""

    def handle_request(self, task: str, operation_id: str, body: Mapping[str, Any]) -> None:
        """Accept a request."""

    def handle_dead_letter(self, outgoing: DeadLetter) -> None:
        """Keep a message that could not be handled."""

    def drive(self, ready: list[str]) -> None:
        """Advance operations."""


class Maintenance:
    """The periodic work of one conductor; every conductor does it, and all may happen twice."""

    def __init__(
        self,
        conductor: Conductor,
        store: Store,
        carrier: Carrier,
        transactions: Transactions,
        settings: ServiceSettings,
    ) -> None:
        self._conductor = conductor
        self._store = store
        self._carrier = carrier
        self._transactions = transactions
        self._settings = settings
        self._echo_at = 0.0
        self.periodic_work = PeriodicWork(store, settings.name)

    def tick(self) -> None:
        """Write the heartbeat, sweep the outbox, wake overdue operations.

        Each part runs whatever becomes of the others; the first error is raised behind them.
        """
        self.periodic_work.run(
            heartbeat=lambda: self._send_echo(self._transactions.run(self._write_heartbeat)),
            outbox=self._sweep,
            reaper=lambda: reap(self._store, self._transactions, self._conductor.drive),
        )

    def _sweep(self) -> None:
        for row, why in self._transactions.outbox.sweep():
            log.error("a message can never be sent", id=row.id, queue=row.queue, reason=why)
            self._conductor.handle_dead_letter(unsendable(row, why))
            self._transactions.run(partial(_drop_row, row.id))

    def _write_heartbeat(self, uow: UnitOfWork) -> float:
        uow.heartbeats.put(Heartbeat(self._settings.name, CONDUCTOR, uow.now))
        raise_generation(uow)
        return uow.now

    def _send_echo(self, now: float) -> None:
        """Send ourselves a heartbeat by the way of hosts' heartbeats: see `liveness`."""
        if now - self._echo_at < ECHO_EVERY_S:
            return
        self._echo_at = now
        beat = HeartbeatMessage(host=ECHO, boot_id=self._settings.name, sequence=0)
        with suppress(Unreachable):  # then no echo arrives, as it should be
            self._carrier.send([OutgoingMessage(REPORTS, HEARTBEAT, beat.to_json())])

    def confirm_old_moves(self) -> int:
        """Confirm moves that have waited for it long enough; return how many were due.

        The operation's id follows from the move and from how often the time has passed: any
        number of conductors request it once, and again after as long, should the source refuse.
        """
        after_s = self._settings.confirm_after_s
        if after_s <= 0:
            return 0
        with self._store.read() as uow:
            moves = uow.migrations.where(state=MigrationState.FINISHED)
            times = {move.id: int((uow.now - move.updated_at) // after_s) for move in moves}
            due = [move for move in moves if times[move.id] > 0]
            instances = {move.id: uow.instances.get(move.instance_id) for move in due}
        for move in due:
            instance = instances[move.id]
            context = {"project_id": instance.project_id if instance else "unknown"}
            body = {"context": context, "instance_id": move.instance_id}
            name = f"confirmed by itself, {times[move.id]} times after {move.updated_at}"
            operation_id = str(uuid.uuid5(uuid.UUID(move.id), name))
            self._conductor.handle_request(ConfirmResize.task, operation_id, body)
        return len(due)

    def retire(self) -> int:
        """Delete what has been kept long enough; return how many records went."""
        keep, limit = self._settings.retention, DELETED_AT_ONCE
        gone = list[int]()

        def drop(work: Callable[[UnitOfWork], int]) -> Callable[[], None]:
            return lambda: gone.append(self._transactions.run(work))

        self.periodic_work.run(
            operations=drop(
                lambda uow: uow.operations.drop_ended_before(uow.now - keep.operations_s, limit)
            ),
            dead_letters=drop(
                lambda uow: uow.dead_letters.drop_before(uow.now - keep.dead_letters_s, limit)
            ),
            instances=drop(
                lambda uow: uow.instances.drop_deleted_before(uow.now - keep.instances_s, limit)
            ),
            removals=drop(lambda uow: uow.removals.drop_before(uow.now - keep.instances_s, limit)),
            processes=drop(lambda uow: forget_processes(uow, uow.now - keep.processes_s)),
        )
        return sum(gone)


def _drop_row(message_id: str, uow: UnitOfWork) -> None:
    uow.outbox.drop(message_id)
