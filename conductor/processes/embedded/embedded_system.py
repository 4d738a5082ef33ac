"""The whole system in one process: conductor, scheduler, compute workers, and a bus between them.

The same parts as over services, with the in-process carrier instead of RabbitMQ. Killing a host
here drops its agent's memory and its unacknowledged messages; journal and hypervisor stay.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import structlog

from conductor.processes.embedded.bus_desk import Desk
from conductor.processes.embedded.compute_hosts import ComputeHost
from conductor.processes.embedded.embedded_agents import EmbeddedAgents
from conductor.processes.placement_server import FOLLOW_EVERY_S, mirror_of
from conductor.processes.scheduling_options import scheduling_settings
from conductor.processes.service_construction import (
    CONFIRM_EVERY_S,
    RETIRE_EVERY_S,
    build_service,
)
from conductor.scheduling.scheduling_service import Scheduler
from conductor.settings import Settings
from conductor.store import Store, UnitOfWork
from models.errors import Conflict, Unreachable
from models.ids import new_operation_id
from models.messages.internal import CONDUCTOR, REPORTS, SCHEDULER, OutgoingMessage
from models.throttled_log import ThrottledLog
from tasks.sending.in_process_bus import Consumer, InProcessBus

POLL_S: Final = 0.2

log = structlog.get_logger(__name__)


class Embedded:
    """A running system of threads; `start` it, `submit` to it, `crash` a host, `stop` it."""

    def __init__(self, settings: Settings, hosts: Iterable[ComputeHost], store: Store) -> None:
        self.settings = settings
        self.store = store
        self.bus = InProcessBus()
        self.service = build_service(settings, store, self.bus, "conductor")
        self.mirror = mirror_of(settings, store)
        self.scheduler = Scheduler(store, scheduling_settings(settings), mirror=self.mirror)
        self._desk = Desk(self.service, self.scheduler)
        self._agents = EmbeddedAgents(settings, hosts, self.bus)
        self._consumers: dict[str, Consumer] = {}
        self._stopping = threading.Event()
        self._periodic: list[threading.Thread] = []

    @property
    def hosts(self) -> list[str]:
        """The names of the simulated hosts."""
        return self._agents.hosts

    def start(self) -> None:
        """Start everything and return when every host has been taken in."""
        for queue, handler in (
            (CONDUCTOR, self._desk.request),
            (REPORTS, self._desk.report),
            (SCHEDULER, self._desk.question),
        ):
            self._consume(queue, handler)
        self.service.transactions.run(self._forget_lives)
        for name in self.hosts:
            self.restart(name)
        for work, every_s in (
            (self._agents.beat, self.settings.heartbeat_s),
            (self.service.tick, min(self.settings.tick_s, POLL_S)),
            (self.service.retire, RETIRE_EVERY_S),
            (self.service.confirm_old_moves, CONFIRM_EVERY_S),
        ):
            self._repeat(work, every_s)
        if self.mirror is not None:
            self._repeat(self.mirror.follow, FOLLOW_EVERY_S)

    def _forget_lives(self, uow: UnitOfWork) -> None:
        """Forget who served our hosts before: that was in a process that is over."""
        for name in self.hosts:
            uow.heartbeats.drop(name)
            uow.registrations.drop(name)

    def stop(self) -> None:
        """Drain: finish what runs, take nothing new; what is left stays in the database."""
        self._stopping.set()
        for thread in self._periodic:
            thread.join(timeout=5.0)
        for queue in (CONDUCTOR, SCHEDULER):
            self._consumers[queue].stop()
        self._agents.drain(5.0)
        for consumer in self._consumers.values():
            consumer.stop()
        self._agents.close()
        self.service.transactions.outbox.delete_sent()

    def submit(self, task: str, body: Mapping[str, Any], operation_id: str | None = None) -> str:
        """Enqueue a request as another service would; return its operation id."""
        outgoing = OutgoingMessage(CONDUCTOR, task, body, operation_id or new_operation_id())
        self.bus.send([outgoing])
        return outgoing.id

    def crash(self, name: str) -> int:
        """Kill a host's agent with its memory and its waiting messages; return how many it lost."""
        return self._agents.crash(name)

    def restart(self, name: str) -> None:
        """Start a new agent on a host's journal and hypervisor."""
        self._agents.start(name)

    def _consume(self, queue: str, handler: Callable[[OutgoingMessage], None]) -> None:
        consumer = Consumer(self.bus, queue, handler)
        self._consumers[queue] = consumer
        consumer.start()

    def _repeat(self, work: Callable[[], Any], every_s: float) -> None:
        warnings, name = ThrottledLog(), work.__name__

        def run() -> None:
            while not self._stopping.wait(every_s):
                try:
                    work()
                except (Conflict, Unreachable) as error:
                    warnings.warn(f"{name} will be tried again", reason=error.message)
                except Exception as error:  # noqa: BLE001 - one bad round must not end the rounds
                    warnings.warn(f"{name} failed", exc_info=error)

        thread = threading.Thread(target=run, name=work.__name__, daemon=True)
        self._periodic.append(thread)
        thread.start()
