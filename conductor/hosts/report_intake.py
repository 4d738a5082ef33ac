"""Reports of hosts, taken in when they are news from the worker that serves the host."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from conductor.hosts import canary, reconciliation, registration
from conductor.hosts.admission import Admitted, Again, answer, is_registered, note_report
from conductor.liveness import hear_echo
from conductor.placement.resources import Ratios
from conductor.store import DeadLetter, UnitOfWork
from conductor.transactions import Transactions
from models.errors import Unreachable
from models.messages.base import parse
from models.messages.carrier import Carrier
from models.messages.internal import (
    ECHO,
    Heartbeat,
    HostRegistration,
    InventoryReport,
    OutgoingMessage,
)
from models.throttled_log import ThrottledLog

_warnings = ThrottledLog()


class ReportIntake:
    """Takes what hosts report; a worker that is not registered is sent a verdict."""

    def __init__(
        self, transactions: Transactions, carrier: Carrier, ratios: Ratios, down_after_s: float
    ) -> None:
        self._transactions = transactions
        self._carrier = carrier
        self._ratios = ratios
        self._down_after_s = down_after_s

    def host_registration(self, body: Mapping[str, Any]) -> None:
        """Take in a host whose worker has started, or send that worker the reason."""
        host_registration = parse(HostRegistration, body)
        verdict = self._transactions.run(
            lambda uow: registration.register_host(
                uow, host_registration, self._ratios, self._down_after_s
            )
        )
        if not isinstance(verdict, Admitted):
            self._send_verdict(answer(host_registration.host, host_registration.boot_id, verdict))

    def heartbeat(self, body: Mapping[str, Any]) -> None:
        """Note that a host lives, or that reports are being read at all."""
        beat = parse(Heartbeat, body)
        if beat.host == ECHO:
            self._transactions.run(lambda uow: hear_echo(uow, self._down_after_s))
        else:
            canaries: list[OutgoingMessage] = []

            def hears(uow: UnitOfWork) -> None:
                message = canary.take_heartbeat(uow, beat)
                canaries[:] = [] if message is None else [message]

            self._from_registered(beat, hears, lists=False)
            self._call(canaries)

    def mark_unroutable(self, queues: Collection[str]) -> None:
        """Degrade the hosts whose queues no message reaches, and let their operations go on."""
        if queues:
            self._transactions.run(lambda uow: canary.mark_unroutable(uow, queues))

    def canary_refused(self, outgoing: DeadLetter) -> None:
        """Take in a canary that became a dead letter."""
        self._transactions.run(lambda uow: canary.refused(uow, outgoing))

    def _call(self, canaries: Sequence[OutgoingMessage]) -> None:
        """Send canaries; that none can be sent to a host says all about its queue."""
        try:
            self._carrier.send(canaries)
        except Unreachable as error:
            self.mark_unroutable(error.data.get("queues", ()))
        except Exception as error:  # noqa: BLE001 - a host must not lose its heartbeat as well
            hosts = [message.queue for message in canaries]
            _warnings.warn("a canary cannot be sent", hosts=hosts, exc_info=error)

    def inventory_report(self, body: Mapping[str, Any]) -> None:
        """Compare what a host has with what it should have."""
        inventory_report = parse(InventoryReport, body)
        self._from_registered(
            inventory_report,
            lambda uow: reconciliation.reconcile(uow, inventory_report),
            lists=True,
        )

    def _from_registered(
        self,
        report: Heartbeat | InventoryReport,
        work: Callable[[UnitOfWork], None],
        *,
        lists: bool,
    ) -> None:
        """Take a report in if it is news from the worker that serves the host.

        Any other worker is asked to register: it may be one that was removed while it lived.
        """

        def take(uow: UnitOfWork) -> bool:
            if not is_registered(uow, report.host, report.boot_id):
                return False
            if note_report(uow, report.host, report.boot_id, report.sequence, lists=lists):
                work(uow)
            return True

        if not self._transactions.run(take):
            self._send_verdict(answer(report.host, report.boot_id, Again(None)))

    def _send_verdict(self, outgoing: OutgoingMessage) -> None:
        """Answer a worker, not by the outbox: it registers again by itself and may lack a queue."""
        with suppress(Unreachable):
            self._carrier.send([outgoing])
