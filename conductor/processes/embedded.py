"""The whole system in one process: conductor, scheduler, compute workers, and a bus between them.

The same parts as over services, with the in-process carrier instead of RabbitMQ. Killing a host
here drops its agent's memory and its unacknowledged messages; journal and hypervisor stay.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from conductor.operations.engine.context import EngineSettings
from conductor.operations.engine.transitions import Engine
from conductor.operations.operation_registry import OPERATIONS
from conductor.placement.resources import Ratios
from conductor.processes.placement_server import FOLLOW_EVERY_S, mirror_of
from conductor.processes.worker_settings import worker_settings
from conductor.scheduling.plugins import filters_named, weighers_named
from conductor.scheduling.scheduling_service import Scheduler
from conductor.scheduling.settings import SchedulingSettings
from conductor.service import ConductorService
from conductor.service_options import Retention, ServiceSettings
from conductor.settings import Settings
from conductor.store import Store, UnitOfWork
from models.errors import Conflict, Unreachable
from models.ids import HostName, compute_queue, new_operation_id
from models.messages.base import parse
from models.messages.internal import (
    CANARY,
    CONDUCTOR,
    HEARTBEAT,
    INVENTORY_REPORT,
    PROGRESS,
    REFUSED,
    REGISTRATION,
    REPLY,
    REPORTS,
    SCHEDULER,
    Canary,
    Instruction,
    OutgoingMessage,
    SelectHosts,
)
from tasks.sending.in_process_bus import Consumer, InProcessBus
from workers.agent import Agent
from workers.hypervisor.ports import Hypervisor
from workers.journal.memory_journal import MemoryJournal
from workers.journal.ports import Journal

log = structlog.get_logger(__name__)

POLL_S = 0.2
RETIRE_EVERY_S = 600.0
CONFIRM_EVERY_S = 60.0
COMPUTE_THREADS = 4


@dataclass(frozen=True, slots=True)
class ComputeHost:
    """What a host is made of when its agent is not looked at: both survive the agent."""

    name: str
    hypervisor: Hypervisor
    journal: Journal = field(default_factory=MemoryJournal)


def build_service(
    settings: Settings,
    store: Store,
    carrier: Any,
    name: str,
    publish: Callable[[Any], None] | None = None,
) -> ConductorService:
    """Return a conductor as the settings describe it."""
    seconds = settings.retention_days * 86_400.0
    engine = Engine(
        OPERATIONS,
        EngineSettings(down_after_s=settings.down_after_s, ask_again_s=settings.ask_again_s),
    )
    ratios = Ratios(
        cpu=settings.cpu_allocation_ratio,
        ram=settings.ram_allocation_ratio,
        disk=settings.disk_allocation_ratio,
    )
    service = ServiceSettings(
        name, settings.confirm_after_s, ratios, Retention(seconds, seconds, seconds)
    )
    return ConductorService(store, carrier, engine, service, publish)


def scheduling_settings(settings: Settings) -> SchedulingSettings:
    """Return what the scheduler needs to know; raise `Rejected` for an unknown filter or weigher.

    Drawn by the number of the process, so that several schedulers seldom want the same host.
    """
    plain = SchedulingSettings(strategy=settings.strategy, down_after_s=settings.down_after_s)
    named = [item for item in settings.filters.split(",") if item]
    pairs = [weigher.split("=") for weigher in settings.weighers.split(",") if weigher]
    return replace(
        plain,
        seed=os.getpid(),
        subset=settings.scheduler_subset,
        filters=filters_named(named) if named else plain.filters,
        weighers=weighers_named({name: float(number) for name, number in pairs}, plain.weights),
    )


class Desk:
    """Takes messages off the bus to the part that they are for, one call each."""

    def __init__(self, service: ConductorService, scheduler: Scheduler) -> None:
        self._service = service
        self._scheduler = scheduler
        self._reports: Mapping[str, Callable[[Mapping[str, Any]], object]] = {
            REPLY: service.handle_reply,
            REGISTRATION: service.handle_registration,
            HEARTBEAT: service.handle_heartbeat,
            INVENTORY_REPORT: service.handle_inventory_report,
            PROGRESS: service.handle_progress,
            REFUSED: service.handle_refusal,
        }

    def request(self, outgoing: OutgoingMessage) -> None:
        """Take a request to the conductor."""
        self._service.handle_request(outgoing.task, outgoing.id, outgoing.body)

    def report(self, outgoing: OutgoingMessage) -> None:
        """Take a reply or a host's report to the conductor."""
        self._reports[outgoing.task](outgoing.body)

    def question(self, outgoing: OutgoingMessage) -> None:
        """Take a question to the scheduler, and let its answer leave."""
        outgoing_messages = self._scheduler.handle(parse(SelectHosts, outgoing.body))
        self._service.transactions.outbox.publish(outgoing_messages)


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
        self._hosts = {host.name: host for host in hosts}
        self._agents: dict[str, Agent] = {}
        self._consumers: dict[str, Consumer] = {}
        self._pool: Executor = ThreadPoolExecutor(COMPUTE_THREADS, thread_name_prefix="compute")
        self._stopping = threading.Event()
        self._clockwork: list[threading.Thread] = []

    @property
    def hosts(self) -> list[str]:
        """The names of the simulated hosts."""
        return list(self._hosts)

    def start(self) -> None:
        """Start everything and return when every host has been taken in."""
        for queue, handler in (
            (CONDUCTOR, self._desk.request),
            (REPORTS, self._desk.report),
            (SCHEDULER, self._desk.question),
        ):
            self._consume(queue, handler)
        self.service.transactions.run(self._forget_lives)
        for name in self._hosts:
            self.restart(name)
        for work, every_s in (
            (self._beat, self.settings.heartbeat_s),
            (self.service.tick, min(self.settings.tick_s, POLL_S)),
            (self.service.retire, RETIRE_EVERY_S),
            (self.service.confirm_old_moves, CONFIRM_EVERY_S),
        ):
            self._repeat(work, every_s)
        if self.mirror is not None:
            self._repeat(self.mirror.follow, FOLLOW_EVERY_S)

    def _forget_lives(self, uow: UnitOfWork) -> None:
        """Forget who served our hosts before: that was in a process that is over."""
        for name in self._hosts:
            uow.heartbeats.drop(name)
            uow.registrations.drop(name)

    def stop(self) -> None:
        """Drain: finish what runs, take nothing new; what is left stays in the database."""
        self._stopping.set()
        for thread in self._clockwork:
            thread.join(timeout=5.0)
        for queue in (CONDUCTOR, SCHEDULER):
            self._consumers[queue].stop()
        for agent in self._agents.values():
            agent.drain(5.0)
        for consumer in self._consumers.values():
            consumer.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.service.transactions.outbox.delete_sent()

    def submit(self, task: str, body: Mapping[str, Any], operation_id: str | None = None) -> str:
        """Enqueue a request as another service would; return its operation id."""
        outgoing = OutgoingMessage(CONDUCTOR, task, body, operation_id or new_operation_id())
        self.bus.send([outgoing])
        return outgoing.id

    def crash(self, name: str) -> int:
        """Kill a host's agent with its memory and its waiting messages; return how many it lost."""
        agent = self._agents.pop(name, None)
        if agent is not None:
            agent.kill()
        consumer = self._consumers.pop(compute_queue(name), None)
        if consumer is not None:
            consumer.stop()
        return self.bus.drop(compute_queue(name))

    def restart(self, name: str) -> None:
        """Start a new agent on a host's journal and hypervisor."""
        host = self._hosts[name]
        agent = Agent(
            HostName(name),
            host.hypervisor,
            host.journal,
            self.bus.send,
            worker_settings(self.settings),
            executor=self._pool,
        )
        self._agents[name] = agent
        agent.start()

        def instruct(outgoing: OutgoingMessage) -> None:
            if outgoing.task == CANARY:
                agent.hear(parse(Canary, outgoing.body))
                return
            try:
                agent.receive(parse(Instruction, outgoing.body))
            except Unreachable:
                if agent.running:
                    raise
                log.info("a message is lost with its agent", host=name, id=outgoing.id)

        self._consume(compute_queue(name), instruct)

    def _consume(self, queue: str, handler: Callable[[OutgoingMessage], None]) -> None:
        consumer = Consumer(self.bus, queue, handler)
        self._consumers[queue] = consumer
        consumer.start()

    def _beat(self) -> None:
        for agent in list(self._agents.values()):
            agent.heartbeat()

    def _repeat(self, work: Callable[[], Any], every_s: float) -> None:
        def run() -> None:
            while not self._stopping.wait(every_s):
                try:
                    work()
                except (Conflict, Unreachable) as error:
                    log.warning("will be tried again", work=work.__name__, reason=error.message)
                except Exception:  # one bad round must not end the rounds
                    log.exception("a periodic task failed", work=work.__name__)

        thread = threading.Thread(target=run, name=work.__name__, daemon=True)
        self._clockwork.append(thread)
        thread.start()
