"""A whole system that moves only when told: real parts, no threads, a clock that is a number.

Messages lie in their queues until `deliver` takes one. `Mortal` stores die after a chosen
commit, as a process does: what was committed stays, what was in memory is gone.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from conductor.processes.embedded.bus_desk import Desk
from conductor.processes.service_construction import build_service
from conductor.scheduling.scheduling_service import Scheduler
from conductor.scheduling.settings import SchedulingSettings
from conductor.settings import Settings
from conductor.store import Event, Host, Instance, OperationRecord, Store, UnitOfWork
from conductor.store.memory.memory_store import MemoryStore
from models.ids import HostName, OperationId, child_instance_id, compute_queue
from models.lifecycle import OperationState
from models.messages.base import parse
from models.messages.hardware.hardware_json import host_from_json
from models.messages.internal import (
    CANARY,
    CONDUCTOR,
    HEARTBEAT,
    INVENTORY_REPORT,
    REPORTS,
    SCHEDULER,
    Canary,
    Instruction,
    OutgoingMessage,
)
from tasks.sending.in_process_bus import InProcessBus
from workers.agent import Agent
from workers.hypervisor.fault_injection import InjectedFaults, always_done
from workers.hypervisor.ports import Hardware
from workers.hypervisor.simulated import SimulatedHypervisor
from workers.journal.memory_journal import MemoryJournal
from workers.settings import WorkerSettings

CONTEXT = {"project_id": "demo", "user_id": "ann", "request_id": "req-1"}
PINNED = {"vcpus": 2, "memory_mb": 1024, "extra_specs": {"hw:cpu_policy": "dedicated"}}
SHARED = {"vcpus": 1, "memory_mb": 512}


class Killed(BaseException):
    """The process died here. No handler may catch it, as none survives a SIGKILL."""


class Mortal:
    """A store whose process dies right after the commit that makes `commits_left` zero.

    `after_commit` is called behind every commit, as if somebody else had come just then.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.commits_left = -1
        self.after_commit: Callable[[], None] = lambda: None

    @contextmanager
    def begin(self) -> Iterator[UnitOfWork]:
        with self._store.begin() as uow:
            yield uow
        self.commits_left -= 1
        if self.commits_left == 0:
            raise Killed
        self.after_commit()

    def read(self) -> AbstractContextManager[UnitOfWork]:
        return self._store.read()

    def close(self) -> None:
        self._store.close()


@dataclass
class SimulatedHost:
    """A host: hypervisor and journal stay, the agent comes and goes."""

    hypervisor: SimulatedHypervisor
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    agent: Agent | None = None


def small_host(cells: int = 1, cpus: int = 4, memory_mib: int = 4096) -> dict[str, Any]:
    """Return a host of docs/contract.md section 2, half of the CPUs of each cell dedicated."""
    size = 2 * cpus
    return {
        "cells": [
            {
                "id": c,
                "socket": c,
                "cpuset": list(range(c * size, c * size + cpus)),
                "pcpuset": list(range(c * size + cpus, (c + 1) * size)),
                "memory": memory_mib,
                "siblings": [[c * size + i] for i in range(size)],
                "mempages": [[4, memory_mib * 256, 0, 0]],
                "cpu_usage": 0,
                "memory_usage": 0,
                "pinned_cpus": [],
            }
            for c in range(cells)
        ]
    }


class World:
    """One conductor, one scheduler, some hosts, and every message between them."""

    def __init__(
        self,
        hosts: int = 3,
        injected_faults: Callable[[str], InjectedFaults] = lambda _: always_done,
        hardware: dict[str, Any] | None = None,
        manifest_s: float = 60.0,
    ) -> None:
        self.now = 1_000_000.0
        self._inventory_report_s = manifest_s
        self._numbers = count()  # ids by chance would make no two runs the same
        self.store = Mortal(MemoryStore(clock=lambda: self.now))
        self.bus = InProcessBus()
        self.settings = Settings()
        self.delivered: list[OutgoingMessage] = []
        self.all_hear = False
        """Whether hosts hear canaries that lie unread: of no deafness is then taken notice."""
        topology = host_from_json(hardware or small_host())
        self.hosts = {
            name: SimulatedHost(
                SimulatedHypervisor(Hardware(topology, 100), injected_faults=injected_faults(name))
            )
            for name in (f"host-{n}" for n in range(hosts))
        }
        self.restart_conductor()
        for name in self.hosts:
            self.restart_host(name)
        self.settle()
        self.delivered.clear()

    # -- processes -------------------------------------------------------------------------

    def restart_conductor(self) -> None:
        """Start conductor and scheduler afresh on the same database."""
        self.store.commits_left = -1
        self.service = build_service(self.settings, self.store, self.bus, "conductor")
        scheduler = Scheduler(self.store, SchedulingSettings(refresh_s=0.0))
        self.desk = Desk(self.service, scheduler)

    def restart_host(self, name: str, **settings: Any) -> None:
        """Start a new agent on a host's journal and hypervisor, perhaps set otherwise."""
        host = self.hosts[name]
        host.agent = Agent(
            HostName(name),
            host.hypervisor,
            host.journal,
            self.bus.send,
            WorkerSettings(retry_wait_s=0.0, manifest_s=self._inventory_report_s, **settings),
            clock=lambda: self.now,
        )
        host.agent.start()

    def kill_host(self, name: str) -> None:
        """Kill a host's agent with its memory; its messages wait, as they would at a broker."""
        agent = self.hosts[name].agent
        if agent is not None:
            agent.kill()
        self.hosts[name].agent = None

    # -- messages ---------------------------------------------------------------------------

    def submit(self, task: str, body: Mapping[str, Any], operation_id: str | None = None) -> str:
        """Enqueue a request; return its operation id."""
        outgoing = OutgoingMessage(
            CONDUCTOR,
            f"conductor.{task}",
            {"context": CONTEXT, **body},
            operation_id or str(uuid.uuid5(uuid.NAMESPACE_OID, str(next(self._numbers)))),
        )
        self.bus.send([outgoing])
        return outgoing.id

    def build(self, flavor: Mapping[str, Any] = PINNED, count: int = 1, **instance: Any) -> str:
        """Enqueue a build; return its operation id."""
        body = {"name": "vm", "flavor": dict(flavor), "image": {"id": "img"}, **instance}
        return self.submit("build_instances", {"instance": body, "count": count})

    def waiting_queues(self) -> list[str]:
        """Return the queues that hold messages that somebody alive would take."""
        dead = {compute_queue(name) for name, host in self.hosts.items() if host.agent is None}
        return [q for q, depth in sorted(self.bus.depths().items()) if depth and q not in dead]

    def deliver(self, queue: str, times: int = 1) -> None:
        """Hand the oldest message of a queue to its consumer, `times` times."""
        outgoing = self.bus.take(queue)
        if outgoing is None:
            return
        self.delivered.append(outgoing)
        for _ in range(times):
            self.hand_over(outgoing)

    def hand_over(self, outgoing: OutgoingMessage) -> None:
        """Hand a message to its consumer; a dead one receives nothing."""
        handlers: Mapping[str, Callable[[OutgoingMessage], None]] = {
            CONDUCTOR: self.desk.request,
            REPORTS: self.desk.report,
            SCHEDULER: self.desk.question,
        }
        if outgoing.queue in handlers:
            return handlers[outgoing.queue](outgoing)
        for name, host in self.hosts.items():
            if compute_queue(name) == outgoing.queue and host.agent is not None:
                if outgoing.task == CANARY:
                    return host.agent.hear(parse(Canary, outgoing.body))
                host.agent.receive(parse(Instruction, outgoing.body))
        return None

    # -- time ------------------------------------------------------------------------------

    def beat(self) -> None:
        """Let every living host say so."""
        for host in self.hosts.values():
            if host.agent is not None:
                if self.all_hear:
                    host.agent.hear(Canary(sent_at=self.now))
                host.agent.heartbeat()

    def pass_time(self, seconds: float) -> None:
        """Let time pass with its heartbeats, and do what is then due."""
        self.now += seconds
        self.beat()
        while self.bus.depths().get(REPORTS):
            self.deliver(REPORTS)
        self.service.tick()

    def audit(self) -> None:
        """Let every living host list its guests now, and the conductor compare; the rest waits."""
        self.beat()
        waiting = []
        while outgoing := self.bus.take(REPORTS):
            if outgoing.task in (INVENTORY_REPORT, HEARTBEAT):
                self.hand_over(outgoing)
            else:
                waiting.append(outgoing)
        self.bus.send(waiting)

    def settle(self, times: int = 1) -> None:
        """Deliver everything, each message `times` times, until nothing is on its way."""
        for _ in range(10_000):
            queues = self.waiting_queues()
            if not queues:
                return
            self.deliver(queues[0], times)
        raise AssertionError("messages circulate for ever")

    def run_out(self, rounds: int = 60) -> None:
        """Settle, and let time pass as often as it takes until every operation has ended."""
        for _ in range(rounds):
            self.settle()
            if not self.living():
                return
            self.pass_time(20.0)
        raise AssertionError(f"never ends: {self.living()}")

    # -- looking ---------------------------------------------------------------------------

    def living(self) -> list[OperationRecord]:
        """Return the operations that have not ended."""
        with self.store.read() as uow:
            return uow.operations.where(ended_at=None)

    def operation(self, operation_id: str) -> OperationRecord:
        """Return an operation."""
        with self.store.read() as uow:
            record = uow.operations.get(operation_id)
        assert record is not None
        return record

    def events(self, operation_id: str) -> list[Event]:
        """Return the story of an operation, oldest first."""
        with self.store.read() as uow:
            return uow.events.where(operation_id=operation_id)

    def child(self, operation_id: str, index: int = 0) -> OperationRecord:
        """Return the build of one instance of a request."""
        return self.operation(str(uuid.uuid5(uuid.UUID(operation_id), f"build-{index}")))

    def instance(self, operation_id: str, index: int = 0) -> Instance:
        """Return an instance of a build request."""
        with self.store.read() as uow:
            found = uow.instances.get(child_instance_id(OperationId(operation_id), index))
        assert found is not None
        return found

    def instance_by_id(self, instance_id: str) -> Instance:
        """Return an instance."""
        with self.store.read() as uow:
            found = uow.instances.get(instance_id)
        assert found is not None
        return found

    def host(self, name: str) -> Host:
        """Return a host as the database has it."""
        with self.store.read() as uow:
            found = uow.hosts.get(name)
        assert found is not None
        return found

    def guests(self) -> dict[str, str]:
        """Return every guest that a hypervisor really has, and where."""
        return {
            domain.instance_id: name
            for name, host in self.hosts.items()
            for domain in host.hypervisor.domains()
        }

    def guest_pairs(self) -> set[tuple[str, str | None]]:
        """Return every (instance, host) of which a hypervisor really has a guest."""
        return {
            (str(domain.instance_id), name)
            for name, host in self.hosts.items()
            for domain in host.hypervisor.domains()
        }

    def ended(self, operation_id: str) -> OperationState:
        """Return how an operation ended."""
        record = self.operation(operation_id)
        assert record.state.ended, record
        return record.state
