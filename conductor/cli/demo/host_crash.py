"""The one crash in the middle of the demo."""

from __future__ import annotations

import time
from typing import Final

from rich.text import Text

from conductor.cli.demo.demo_progress import OperationStatus
from conductor.cli.demo.demo_stage import Stage
from conductor.operations.engine.wait_reasons import ON_HOST
from conductor.processes.embedded.embedded_system import Embedded

AFTER: Final = 0.4
"""Share of the instances that have ended when it happens."""

DOWN_S: Final = 1.5


class HostCrash:
    """Crashes the busiest host once, and starts it again a moment later."""

    def __init__(self, system: Embedded, total: int) -> None:
        self._system = system
        self._total = total
        self._back_at: float | None = None
        self.host: str | None = None

    @property
    def down(self) -> frozenset[str]:
        """The host that is down now, if it is."""
        return frozenset({self.host} if self.host and self._back_at is not None else ())

    def step(self, status: OperationStatus, stage: Stage) -> None:
        """Crash or restart the host when that is due, and print a line."""
        if self.host is None:
            if status.ended >= self._total * AFTER and any(status.waiting.values()):
                stage.print_line(self._crash(status))
        elif self._back_at is not None and time.monotonic() >= self._back_at:
            stage.print_line(self._restart(self.host))

    def _crash(self, status: OperationStatus) -> Text:
        self.host = host = max(status.waiting, key=lambda name: status.waiting[name])
        lost = self._system.crash(host)
        self._back_at = time.monotonic() + DOWN_S
        also = f", {lost} unacknowledged messages with it" if lost else ""
        text = f"{host}: compute worker crashed with {status.waiting[host]} builds in hand; "
        return Text.assemble(("✗ ", "bold red"), text, "its memory is gone", also)

    def _restart(self, host: str) -> Text:
        with self._system.store.read() as uow:
            owed = uow.operations.count(waiting_on=ON_HOST + host, ended_at=None)
        self._system.restart(host)
        self._back_at = None
        text = (
            f"{host}: restarted, read its journal, registered; {owed} instructions dispatched again"
        )
        return Text.assemble(("● ", "bold green"), text)
