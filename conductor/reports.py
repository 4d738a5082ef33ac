"""Reports of hosts, taken in when they are news from the worker that serves the host."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from conductor import hearing, reconciliation, registration
from conductor.admission import Admitted, Again, answer, heard, is_registered
from conductor.liveness import hear_echo
from conductor.outbox import Outbox
from conductor.placement.resources import Ratios
from conductor.store.ports import UnitOfWork
from models.errors import Unreachable
from models.messages.carrier import Carrier
from models.messages.letters import ECHO, Heartbeat, Hello, Letter, Manifest


class Reports:
    """Takes what hosts report; whoever is not registered is asked to register, or told why not."""

    def __init__(
        self, outbox: Outbox, carrier: Carrier, ratios: Ratios, down_after_s: float
    ) -> None:
        self._outbox = outbox
        self._carrier = carrier
        self._ratios = ratios
        self._down_after_s = down_after_s

    def hello(self, hello: Hello) -> None:
        """Take in a host whose worker has started, or tell that worker why not."""
        verdict = self._outbox.run(
            lambda uow: registration.greet(uow, hello, self._ratios, self._down_after_s)
        )
        if not isinstance(verdict, Admitted):
            self._tell_worker(answer(hello.host, hello.boot_id, verdict))

    def heartbeat(self, beat: Heartbeat) -> None:
        """Note that a host lives, or that reports are being read at all."""
        if beat.host == ECHO:
            self._outbox.run(lambda uow: hear_echo(uow, self._down_after_s))
        else:
            canaries: list[Letter] = []

            def hears(uow: UnitOfWork) -> None:
                canary = hearing.beaten(uow, beat)
                canaries[:] = [] if canary is None else [canary]

            self._from_registered(beat, hears, lists=False)
            self._call(canaries)

    def no_way_to(self, queues: Collection[str]) -> None:
        """Degrade the hosts whose queues no message reaches, and let their operations go on."""
        if queues:
            self._outbox.run(lambda uow: hearing.no_way_to(uow, queues))

    def _call(self, canaries: Sequence[Letter]) -> None:
        """Send canaries; that none can be sent to a host says all about its queue."""
        try:
            self._carrier.send(canaries)
        except Unreachable as error:
            self.no_way_to(error.data.get("queues", ()))

    def manifest(self, manifest: Manifest) -> None:
        """Compare what a host has with what it should have."""
        self._from_registered(
            manifest, lambda uow: reconciliation.reconcile(uow, manifest), lists=True
        )

    def _from_registered(
        self,
        report: Heartbeat | Manifest,
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
            if heard(uow, report.host, report.boot_id, report.sequence, lists=lists):
                work(uow)
            return True

        if not self._outbox.run(take):
            self._tell_worker(answer(report.host, report.boot_id, Again(None)))

    def _tell_worker(self, letter: Letter) -> None:
        """Answer a worker; not by the outbox, as it asks again by itself, and may have no queue."""
        with suppress(Unreachable):
            self._carrier.send([letter])
