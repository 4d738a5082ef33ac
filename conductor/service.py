"""The conductor: takes requests and reports, moves operations, and looks after what is overdue."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeAlias

import structlog

from conductor.hosts.reconciliation import note_progress
from conductor.hosts.report_intake import ReportIntake
from conductor.maintenance import Maintenance
from conductor.operations.engine.transitions import Engine
from conductor.request_intake import accept_request, check_id, incoming_of, refuse_request
from conductor.service_options import ServiceSettings
from conductor.status_observer import Publish, StatusObserver, Unpublished, publish_ends
from conductor.store import DeadLetter, Store, UnitOfWork
from conductor.transactions import Transactions, kept_once
from conductor.undelivered import refused_message, undelivered
from conductor.upkeep import PeriodicWork
from models.errors import Rejected
from models.messages.base import parse
from models.messages.carrier import Carrier
from models.messages.internal import CANARY, SCHEDULER, Progress, Refusal, Reply

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
        settings = settings or ServiceSettings()
        self._publish = publish
        self.transactions = Transactions(store, carrier, self._mark_unroutable)
        self._reports = ReportIntake(
            self.transactions, carrier, settings.ratios, engine.settings.down_after_s
        )
        self._maintenance = Maintenance(self, store, carrier, self.transactions, settings)

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
        incoming = incoming_of(task, operation_id, body, reply_to, fault)
        try:
            check_id(incoming)
            ready = self._transition(incoming.id, partial(accept_request, self._engine, incoming))
        except Rejected as error:
            log.warning("request refused", task=task, id=incoming.id, reason=error.message)
            self.transactions.run(partial(refuse_request, incoming, error))
        else:
            self.drive(ready)

    def handle_reply(self, body: Mapping[str, Any]) -> bool:
        """Apply a reply of the scheduler or of a host; say whether an operation waited for it.

        Stale ones change nothing.
        """
        reply = parse(Reply, body)
        claimed = reply.sender == SCHEDULER and reply.outcome == "done"
        expected = False

        def work(uow: UnitOfWork) -> list[str]:
            nonlocal expected
            expected = self._engine.expects(uow, reply)
            return self._engine.reply(uow, reply)

        self.drive(self._transition(reply.token.operation_id, work, claimed=claimed))
        return expected

    def handle_registration(self, body: Mapping[str, Any]) -> None:
        """Register a host that has started: hardware, guests; dispatches to it are sent again."""
        self._reports.host_registration(body)

    def handle_heartbeat(self, body: Mapping[str, Any]) -> None:
        """Note that a host lives."""
        self._reports.heartbeat(body)

    def _mark_unroutable(self, queues: Collection[str]) -> None:
        self._reports.mark_unroutable(queues)

    def handle_inventory_report(self, body: Mapping[str, Any]) -> None:
        """Compare what a host has with what it should have."""
        self._reports.inventory_report(body)

    def handle_progress(self, body: Mapping[str, Any]) -> bool:
        """Note how far a copy is, and say whether its host is at it; nothing is decided by it."""
        progress = parse(Progress, body)
        expected = False

        def note(uow: UnitOfWork) -> list[str]:
            nonlocal expected
            expected = note_progress(uow, progress)
            return []

        self._transition(progress.token.operation_id, note)
        return expected

    def handle_refusal(self, body: Mapping[str, Any]) -> None:
        """Keep a message that a host or the scheduler refused, and end the wait for its answer."""
        self.handle_dead_letter(refused_message(parse(Refusal, body), time.time()))

    def handle_dead_letter(self, outgoing: DeadLetter) -> None:
        """Keep a message that could not be handled; end the wait of the operation that sent it.

        The same id again changes nothing.
        """
        if outgoing.task == CANARY:
            return self._reports.canary_refused(outgoing)
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

    @property
    def periodic_work(self) -> PeriodicWork:
        """Where parts of periodic work note what fails."""
        return self._maintenance.periodic_work

    def tick(self) -> None:
        """Do what is due: see `Maintenance.tick`."""
        self._maintenance.tick()

    def confirm_old_moves(self) -> int:
        """Confirm moves that have waited for it long enough; return how many were due."""
        return self._maintenance.confirm_old_moves()

    def retire(self) -> int:
        """Delete what has been kept long enough; return how many records went."""
        return self._maintenance.retire()

    def publish_ends(self, unpublished: Unpublished) -> int:
        """Publish ends that a conductor which died had not published; return how many."""
        if self._publish is None:
            return 0
        return publish_ends(self._store, self._publish, unpublished)

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
