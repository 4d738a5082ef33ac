"""Agents of simulated hosts in this process, which may be killed and started again."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final

import structlog

from conductor.processes.embedded.compute_hosts import ComputeHost
from conductor.processes.worker_settings import worker_settings
from conductor.settings import Settings
from models.errors import Unreachable
from models.ids import HostName, compute_queue
from models.messages.base import parse
from models.messages.internal import CANARY, Canary, Instruction, OutgoingMessage
from tasks.sending.in_process_bus import Consumer, InProcessBus
from workers.agent import Agent

COMPUTE_THREADS: Final = 4

log = structlog.get_logger(__name__)


class EmbeddedAgents:
    """The agent of each host, and the consumer of its queue on the bus."""

    def __init__(self, settings: Settings, hosts: Iterable[ComputeHost], bus: InProcessBus) -> None:
        """Start none yet; `start` does, host by host."""
        self._settings = settings
        self._bus = bus
        self._hosts = {host.name: host for host in hosts}
        self._agents: dict[str, Agent] = {}
        self._consumers: dict[str, Consumer] = {}
        self._pool: Executor = ThreadPoolExecutor(COMPUTE_THREADS, thread_name_prefix="compute")

    @property
    def hosts(self) -> list[str]:
        """The names of the hosts."""
        return list(self._hosts)

    def start(self, name: str) -> None:
        """Start a new agent on a host's journal and hypervisor."""
        host = self._hosts[name]
        agent = Agent(
            HostName(name),
            host.hypervisor,
            host.journal,
            self._bus.send,
            worker_settings(self._settings),
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

        queue = compute_queue(name)
        consumer = Consumer(self._bus, queue, instruct)
        self._consumers[queue] = consumer
        consumer.start()

    def crash(self, name: str) -> int:
        """Kill a host's agent with its memory and its waiting messages; return how many it lost."""
        agent = self._agents.pop(name, None)
        if agent is not None:
            agent.kill()
        consumer = self._consumers.pop(compute_queue(name), None)
        if consumer is not None:
            consumer.stop()
        return self._bus.drop(compute_queue(name))

    def beat(self) -> None:
        """Let every agent send its heartbeat."""
        for agent in list(self._agents.values()):
            agent.heartbeat()

    def drain(self, timeout_s: float) -> None:
        """Let every agent finish what runs."""
        for agent in self._agents.values():
            agent.drain(timeout_s)

    def close(self) -> None:
        """Take no more messages, and let the threads go."""
        for consumer in self._consumers.values():
            consumer.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)
