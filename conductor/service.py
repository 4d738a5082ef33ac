"""The conductor: takes requests and reports, moves operations, and looks after what is overdue."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import structlog

from conductor.hosts import canary, reconciliation
from conductor.hosts.report_intake import Reports
from conductor.liveness import ECHO_EVERY_S
from conductor.operation_status import OperationStatus, operation_status_of
from conductor.operations.engine.acceptance import Incoming, accept
from conductor.operations.engine.completion import locked
from conductor.operations.engine.transitions import Engine
from conductor.operations.engine.wait_reasons import awaits, is_dispatch
from conductor.reaper import reap
from conductor.service_options import ServiceSettings
from conductor.store.ports import Store, UnitOfWork
from conductor.store.records import DeadLetter, Heartbeat
from conductor.transactions import Outbox, kept_once
from conductor.undelivered import undelivered, unsendable
from conductor.upkeep import Rounds, forget_processes
from models.errors import ConductorError, Rejected, Unreachable
from models.ids import is_uuid
from models.lifecycle import MigrationState, OperationState
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
ENDS_SINCE_S, ENDS_MOST = 600.0, 5_000
"""How far back, and how many at most, ends are looked at again."""
ENDS_SETTLED_S = 5.0
"""Whoever wrote a younger end may just be showing it."""
Work: TypeAlias = Callable[[UnitOfWork], list[str]]
Unshown: TypeAlias = Callable[[Sequence[str]], Sequence[str]]


class ConductorService:
    """The shell around the engine: loads, calls, saves, sends. Any number may run at once."""

    def __init__(
        self,
        store: Store,
        carrier: Carrier,
        engine: Engine,
        settings: ServiceSettings | None = None,
        on_change: Callable[[OperationStatus], None] | None = None,
    ) -> None:
        self._store = store
        self._engine = engine
        self._settings = settings or ServiceSettings()
        self._on_change = on_change
        self._carrier = carrier
        self._echo_at = 0.0
        self.rounds = Rounds(store, self._settings.name)
        self.outbox = Outbox(store, carrier, self._no_way_to)
        self._reports = Reports(
            self.outbox, carrier, self._settings.ratios, engine.settings.down_after_s
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

        What cannot be an operation, or is another request under a known id, is kept as a dead
        letter with the reason; nothing that a caller sends raises. Secrets that a caller sends
        all the same are masked before anything else sees them. With a `fault` its message could
        not be taken: it ends at once, and whoever asks for its id hears why.
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
            ready = self._move(incoming.id, partial(self._accept, incoming))
        except Rejected as error:
            return self._refuse(incoming, error)
        self.drive(ready)
        return None

    def handle_reply(self, body: Mapping[str, Any]) -> bool:
        """Apply a reply of the scheduler or of a host; say whether it was awaited.

        Stale ones change nothing.
        """
        reply = parse(Reply, body)
        claimed = reply.sender == SCHEDULER and reply.outcome == "done"
        awaited = False

        def work(uow: UnitOfWork) -> list[str]:
            nonlocal awaited
            asked = locked(uow, reply.token.operation_id)  # as the engine does, for nothing more
            awaited = awaits(asked, reply.token, reply.sender)
            return self._engine.reply(uow, reply)

        self.drive(self._move(reply.token.operation_id, work, claimed=claimed))
        return awaited

    def handle_registration(self, body: Mapping[str, Any]) -> None:
        """Take in a host that has started: hardware, guests, and what it was asked meanwhile."""
        self._reports.host_registration(parse(HostRegistration, body))

    def handle_heartbeat(self, body: Mapping[str, Any]) -> None:
        """Note that a host lives."""
        self._reports.heartbeat(parse(HeartbeatMessage, body))

    def _no_way_to(self, queues: Collection[str]) -> None:
        self._reports.no_way_to(queues)

    def handle_inventory_report(self, body: Mapping[str, Any]) -> None:
        """Compare what a host has with what it should have."""
        self._reports.inventory_report(parse(InventoryReport, body))

    def handle_progress(self, body: Mapping[str, Any]) -> bool:
        """Note how far a copy is, and say whether its host was asked; nothing is decided by it."""
        progress = parse(Progress, body)
        asked = False

        def note(uow: UnitOfWork) -> list[str]:
            nonlocal asked
            asked = reconciliation.note_progress(uow, progress)
            return []

        self._move(progress.token.operation_id, note)
        return asked

    def handle_dead_letter(self, outgoing: DeadLetter) -> None:
        """Keep a message that could not be handled, and end the ask that it was, if it was one.

        The same id again changes nothing.
        """
        if outgoing.task == CANARY:
            return self.outbox.run(lambda uow: canary.refused(uow, outgoing))
        with self._store.read() as uow:
            found = undelivered(uow, outgoing)
        if found is None:
            return self.outbox.keep_dead_letter(outgoing)

        def work(uow: UnitOfWork) -> list[str]:
            if not kept_once(uow, outgoing):
                return []
            ask = (found.operation_id, found.message_id)
            return self._engine.undelivered(uow, *ask, found.error, began=found.began)

        return self.drive(self._move(found.operation_id, work, unanswered=True))

    def cancel(self, operation_id: str, reason: str) -> None:
        """Turn an operation back at its next boundary."""
        self.drive(self.outbox.run(lambda uow: self._engine.cancel(uow, operation_id, reason)))

    # -- time ------------------------------------------------------------------------------

    def tick(self) -> None:
        """Do what is due: sweep the outbox, wake overdue operations, say that we live.

        Every conductor does this; all of it may happen twice. Each part is done whatever becomes
        of the others; raises the first error behind them.
        """
        self.rounds.run(
            heartbeat=lambda: self._send_echo(self.outbox.run(self._write_heartbeat)),
            outbox=self._sweep,
            reaper=lambda: reap(self._store, self.outbox, self.drive),
        )

    def _sweep(self) -> None:
        for row, why in self.outbox.sweep():
            log.error("a letter can never be sent", id=row.id, queue=row.queue, reason=why)
            self.handle_dead_letter(unsendable(row, why))
            self.outbox.run(partial(_drop_row, row.id))

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

    def show_ends(self, unshown: Unshown) -> int:
        """Show ends whose conductor died between their commit and showing them; return how many.

        `unshown` returns those of the ids of which no end is to be seen. Once a conductor is up
        again whoever waits for a result gets it, and never another one instead.
        """
        if self._on_change is None:
            return 0
        with self._store.read() as uow:
            lately = uow.operations.ended_since(uow.now - ENDS_SINCE_S, ENDS_MOST)
        shown = 0
        for operation_id in unshown(lately):
            with self._store.read() as uow:
                status = operation_status_of(uow, operation_id)
            if status is not None and status.at - (status.record.ended_at or 0.0) >= ENDS_SETTLED_S:
                self._on_change(status)
                shown += 1
        return shown

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
            return lambda: gone.append(self.outbox.run(work))

        self.rounds.run(
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
                self._move(operation_id, partial(self._advance, operation_id), unanswered=True)
            )

    def _advance(self, operation_id: str, uow: UnitOfWork) -> list[str]:
        return self._engine.advance(uow, operation_id)

    def _move(
        self, operation_id: str, work: Work, *, claimed: bool = False, unanswered: bool = False
    ) -> list[str]:
        """Make one transition and show, once it is committed, what it made of the operation.

        `claimed`: the scheduler has written a claim before, and shows nothing by itself. With
        `unanswered`, an ask that is out no longer afterwards has been given up.
        """
        if self._on_change is None:
            return self.outbox.run(work)
        ready, status = self.outbox.run(
            lambda uow: _seen(uow, operation_id, work, unanswered=unanswered)
        )
        if status is not None:
            if claimed and status.record.state is OperationState.RUNNING:
                claim = replace(status.record, state=OperationState.CLAIMED)
                self._on_change(replace(status, record=claim))
            self._on_change(status)
        return ready

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

        self.outbox.run(keep)


def _drop_row(message_id: str, uow: UnitOfWork) -> None:
    uow.outbox.drop(message_id)


def _seen(
    uow: UnitOfWork, operation_id: str, work: Work, *, unanswered: bool
) -> tuple[list[str], OperationStatus | None]:
    """Do the work; return what it returns, and the operation as it then is."""
    # The engine locks it too, in the same order, so this costs no statement more.
    before = locked(uow, operation_id) if unanswered else None
    ready = work(uow)
    status = operation_status_of(uow, operation_id)
    if (
        before is None
        or before.waiting is None
        or status is None
        or not is_dispatch(before.waiting_on)
    ):
        return ready, status
    outgoing = before.waiting["outgoing"]
    after = status.record.waiting
    still = after is not None and after["outgoing"]["id"] == outgoing["id"]
    return ready, status if still else replace(status, given_up=outgoing)


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
