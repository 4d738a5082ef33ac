"""The conductor: takes requests and reports, moves operations, and looks after what is overdue."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import structlog

from conductor.hosts import canary, reconciliation
from conductor.hosts.report_intake import ReportIntake
from conductor.liveness import ECHO_EVERY_S
from conductor.operations.engine.acceptance import Incoming, accept
from conductor.operations.engine.completion import locked
from conductor.operations.engine.transitions import Engine
from conductor.operations.engine.wait_reasons import awaits
from conductor.reaper import reap
from conductor.service_options import ServiceSettings
from conductor.status_observer import Publish, StatusObserver, Unpublished, publish_ends
from conductor.store import DeadLetter, Heartbeat, Store, UnitOfWork
from conductor.transactions import Transactions, kept_once
from conductor.undelivered import undelivered, unsendable
from conductor.upkeep import PeriodicWork, forget_processes
from models.errors import ConductorError, Rejected, Unreachable
from models.ids import is_uuid
from models.lifecycle import MigrationState
from models.messages.answers import refusal_message
from models.messages.base import parse
from models.messages.carrier import Carrier
from models.messages.internal import (
    CANARY,
    CONDUCTOR,
    ECHO,
    HEARTBEAT,
    REPORTS,
    SCHEDULER,
    HostRegistration,
    InventoryReport,
    OutgoingMessage,
    Progress,
    Reply,
)
from models.messages.internal import Heartbeat as HeartbeatMessage
from models.messages.json_safety import kept, unkeepable
from models.messages.requests import REQUESTS, ConfirmResize
from models.messages.versions import newer
from models.secrets import masked

log = structlog.get_logger(__name__)
Work: TypeAlias = Callable[[UnitOfWork], list[str]]


class ConductorService:
    """The shell around the engine: loads, calls, saves, sends. Any number may run at once."""

    def __init__(
        self,
        store: Store,
        carrier: Carrier,
        engine: Engine,
        settings: ServiceSettings | None = None,
        publish: Publish | None = None,
    ) -> None:
        self._store = store
        self._engine = engine
        self._settings = settings or ServiceSettings()
        self._publish = publish
        self._carrier = carrier
        self._echo_at = 0.0
        self.periodic_work = PeriodicWork(store, self._settings.name)
        self.transactions = Transactions(store, carrier, self._mark_unroutable)
        self._reports = ReportIntake(
            self.transactions, carrier, self._settings.ratios, engine.settings.down_after_s
        )

    # -- messages --------------------------------------------------------------------------

    def handle_request(
        self,
        task: str,
        operation_id: str,
        body: Mapping[str, Any],
        reply_to: str | None = None,
        fault: Rejected | None = None,
    ) -> None:
        """Accept a request and move its operation as far as it goes without waiting.

        What cannot be an operation, or is another request under a known id, is kept with
        the reason, as a dead letter; nothing that a caller sends raises. Secrets in it are masked
        before anything else sees them. With a `fault` the message could not be read: its operation
        fails at once, and a query of its id returns why.
        """
        unfit = unkeepable(body)
        fault = fault or unfit
        body = masked(kept(body) if unfit else body)
        if not is_uuid(operation_id):
            shown = kept(operation_id[:80])
            error = Rejected("id_invalid", f"id is {shown}: should be a lower-case UUID", "id")
            return self._refuse(Incoming(shown, task, dict(body), reply_to), error)
        incoming = Incoming(operation_id, task, dict(body), reply_to, fault)
        try:
            ready = self._transition(incoming.id, partial(self._accept, incoming))
        except Rejected as error:
            return self._refuse(incoming, error)
        self.drive(ready)
        return None

    def handle_reply(self, body: Mapping[str, Any]) -> bool:
        """Apply a reply of the scheduler or of a host; say whether an operation waited for it.

        Stale ones change nothing.
        """
        reply = parse(Reply, body)
        claimed = reply.sender == SCHEDULER and reply.outcome == "done"
        expected = False

        def work(uow: UnitOfWork) -> list[str]:
            nonlocal expected
            record = locked(uow, reply.token.operation_id)  # the engine's lock: no statement more
            expected = awaits(record, reply.token, reply.sender)
            return self._engine.reply(uow, reply)

        self.drive(self._transition(reply.token.operation_id, work, claimed=claimed))
        return expected

    def handle_registration(self, body: Mapping[str, Any]) -> None:
        """Take in a host that has started: hardware, guests, and what it was asked meanwhile."""
        self._reports.host_registration(parse(HostRegistration, body))

    def handle_heartbeat(self, body: Mapping[str, Any]) -> None:
        """Note that a host lives."""
        self._reports.heartbeat(parse(HeartbeatMessage, body))

    def _mark_unroutable(self, queues: Collection[str]) -> None:
        self._reports.mark_unroutable(queues)

    def handle_inventory_report(self, body: Mapping[str, Any]) -> None:
        """Compare what a host has with what it should have."""
        self._reports.inventory_report(parse(InventoryReport, body))

    def handle_progress(self, body: Mapping[str, Any]) -> bool:
        """Note how far a copy is, and say whether its host is at it; nothing is decided by it."""
        progress = parse(Progress, body)
        expected = False

        def note(uow: UnitOfWork) -> list[str]:
            nonlocal expected
            expected = reconciliation.note_progress(uow, progress)
            return []

        self._transition(progress.token.operation_id, note)
        return expected

    def handle_dead_letter(self, outgoing: DeadLetter) -> None:
        """Keep a message that could not be handled; end the wait of the operation that sent it.

        The same id again changes nothing.
        """
        if outgoing.task == CANARY:
            return self.transactions.run(lambda uow: canary.refused(uow, outgoing))
        with self._store.read() as uow:
            found = undelivered(uow, outgoing)
        if found is None:
            return self.transactions.keep_dead_letter(outgoing)

        def work(uow: UnitOfWork) -> list[str]:
            if not kept_once(uow, outgoing):
                return []
            return self._engine.undelivered(
                uow, found.operation_id, found.message_id, found.error, began=found.began
            )

        return self.drive(self._transition(found.operation_id, work, unanswered=True))

    def cancel(self, operation_id: str, reason: str) -> None:
        """Roll an operation back from its next boundary."""
        self.drive(
            self.transactions.run(lambda uow: self._engine.cancel(uow, operation_id, reason))
        )

    # -- time ------------------------------------------------------------------------------

    def tick(self) -> None:
        """Do what is due: sweep the outbox, wake overdue operations, say that we live.

        Every conductor does this; all of it may happen twice. Each part is done whatever becomes
        of the others; raises the first error behind them.
        """
        self.periodic_work.run(
            heartbeat=lambda: self._send_echo(self.transactions.run(self._write_heartbeat)),
            outbox=self._sweep,
            reaper=lambda: reap(self._store, self.transactions, self.drive),
        )

    def _sweep(self) -> None:
        for row, why in self.transactions.outbox.sweep():
            log.error("a message can never be sent", id=row.id, queue=row.queue, reason=why)
            self.handle_dead_letter(unsendable(row, why))
            self.transactions.run(partial(_drop_row, row.id))

    def _write_heartbeat(self, uow: UnitOfWork) -> float:
        uow.heartbeats.put(Heartbeat(self._settings.name, CONDUCTOR, uow.now))
        return uow.now

    def _send_echo(self, now: float) -> None:
        """Send ourselves a heartbeat by the way of hosts' heartbeats: see `liveness`."""
        if now - self._echo_at < ECHO_EVERY_S:
            return
        self._echo_at = now
        beat = HeartbeatMessage(host=ECHO, boot_id=self._settings.name, sequence=0)
        with suppress(Unreachable):  # as deaf as it should look
            self._carrier.send([OutgoingMessage(REPORTS, HEARTBEAT, beat.to_json())])

    def publish_ends(self, unpublished: Unpublished) -> int:
        """Publish ends that a conductor which died had not published; return how many."""
        if self._publish is None:
            return 0
        return publish_ends(self._store, self._publish, unpublished)

    def confirm_old_moves(self) -> int:
        """Confirm moves that have awaited it long enough; return how many were due.

        The operation's id follows from the move and from how often the time has passed: any
        number of conductors ask once, and again after as long, should the source have refused.
        """
        after_s = self._settings.confirm_after_s
        if after_s <= 0:
            return 0
        with self._store.read() as uow:
            waiting = uow.migrations.where(state=MigrationState.FINISHED)
            times = {
                operation.id: int((uow.now - operation.updated_at) // after_s)
                for operation in waiting
            }
            due = [operation for operation in waiting if times[operation.id] > 0]
            projects = {operation.id: uow.instances.get(operation.instance_id) for operation in due}
        for move in due:
            instance = projects[move.id]
            context = {"project_id": instance.project_id if instance else "unknown"}
            body = {"context": context, "instance_id": move.instance_id}
            name = f"confirmed by itself, {times[move.id]} times after {move.updated_at}"
            operation_id = str(uuid.uuid5(uuid.UUID(move.id), name))
            self.handle_request(ConfirmResize.task, operation_id, body)
        return len(due)

    def retire(self) -> int:
        """Delete what has been kept long enough; return how many records went."""
        keep, limit = self._settings.retention, 1_000
        gone = list[int]()

        def drop(work: Callable[[UnitOfWork], int]) -> Callable[[], None]:
            return lambda: gone.append(self.transactions.run(work))

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

    # -- moving ----------------------------------------------------------------------------

    def drive(self, ready: list[str]) -> None:
        """Advance operations until each waits or has ended: one transaction a transition."""
        stack = list(ready)
        while stack:
            operation_id = stack.pop()
            stack.extend(
                self._transition(
                    operation_id, partial(self._advance, operation_id), unanswered=True
                )
            )

    def _advance(self, operation_id: str, uow: UnitOfWork) -> list[str]:
        return self._engine.advance(uow, operation_id)

    def _transition(
        self, operation_id: str, work: Work, *, claimed: bool = False, unanswered: bool = False
    ) -> list[str]:
        """Make one transaction about an operation; its status is published after the commit.

        For `claimed` and `unanswered` see `StatusObserver`.
        """
        if self._publish is None:
            return self.transactions.run(work)
        observer = StatusObserver(
            self._publish, operation_id, claimed=claimed, unanswered=unanswered
        )
        return self.transactions.run(work, observer)

    def _accept(self, incoming: Incoming, uow: UnitOfWork) -> list[str]:
        """Accept a request; one of a newer version is also kept until we are upgraded.

        It has failed for its sender; as a dead letter it can be replayed by a later release.
        """
        kind = REQUESTS.get(incoming.task)
        refused = newer(incoming.task, incoming.body, kind.current_version) if kind else None
        if refused is not None and uow.operations.get(incoming.id) is None:
            uow.dead_letters.add(_dead_letter(uow, incoming, refused))
        return accept(self._engine, uow, incoming)

    def _refuse(self, incoming: Incoming, error: ConductorError) -> None:
        """Keep a request that is no operation of its own, and tell its sender if that can be."""
        log.warning("request refused", task=incoming.task, id=incoming.id, reason=error.message)

        def keep(uow: UnitOfWork) -> None:
            uow.dead_letters.add(_dead_letter(uow, incoming, error))
            if incoming.reply_to:
                uow.post(refusal_message(incoming.reply_to, incoming.id, error))

        self.transactions.run(keep)


def _drop_row(message_id: str, uow: UnitOfWork) -> None:
    uow.outbox.drop(message_id)


def _dead_letter(uow: UnitOfWork, incoming: Incoming, error: ConductorError) -> DeadLetter:
    headers = {"id": incoming.id}
    if incoming.reply_to:
        headers["reply_to"] = incoming.reply_to
    return DeadLetter(
        id=str(uuid.uuid4()),
        at=uow.now,
        queue=CONDUCTOR,
        task=incoming.task,
        reason=f"{error.code}: {error.message}",
        body=json.dumps(incoming.body, default=str),
        headers=headers,
    )
