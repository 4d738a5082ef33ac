"""The compute worker's process: instructions for one host, acknowledged once they are journaled."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import structlog
from celery import Celery, Task
from celery.exceptions import Ignore, Reject

from models.errors import Broken
from models.messages.base import parse
from models.messages.internal import CANARY, COMPUTE, Canary, Instruction
from tasks.app import make_app
from tasks.consuming.acknowledgement import settle
from tasks.consuming.hardened_consumer import EX_SOFTWARE, Consuming
from tasks.consuming.store_retry import StoreRetry
from tasks.consuming.task_worker import serve, stop_serving
from tasks.flower.event_stream import EventStream
from tasks.refusals import Refusals, Send
from tasks.routing import host_queue

PREFETCH = 16
OTHER = COMPUTE + "other"
"""Takes the verbs of a newer conductor: the agent answers that this host does not know them."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Host:
    """The host that a process serves, and the verbs that its agent knows."""

    name: str
    verbs: Collection[str]

    @property
    def role(self) -> str:
        """The name of its process, for `node_name`."""
        return f"compute-{self.name}"


class Agent(Protocol):
    """What the tasks call. It may be called twice with the same message, from any thread."""

    def receive(self, instruction: Instruction) -> None:
        """Return once the instruction is safe in the journal.

        Raises `Unreachable` when it takes nothing more, `Broken` when its journal failed.
        """

    def hear(self, canary: Canary) -> None:
        """Note that a canary came through the queue; the next heartbeat says so."""


def serve_compute(
    broker_url: str,
    host: Host,
    agent: Agent,
    events: EventStream,
    send: Send,
    threads: int = 2,
) -> int:
    """Run the process of one host until it is told to stop; return its exit code.

    The agent is started before and drained afterwards by the caller. The code is 70 when the
    agent's journal has failed: what was in hand returns to the queue for the next process.
    `events` says nothing (`Silence`) where the conductor is to tell what hosts do; `send` tells the
    conductor what this host refuses.
    """
    app = make_app(broker_url, (host_queue(host.name),))
    store_retry = StoreRetry()
    refusals = Refusals(send, host.name)
    register(app, agent, host.verbs, store_retry, refusals)
    consuming = Consuming(
        PREFETCH,
        store_retry,
        events,
        hosts=(host.name,),
        record=refusals.of_message,
        other=OTHER,
    )
    return serve(app, host.role, consuming, threads)


def register(
    app: Celery, agent: Agent, verbs: Collection[str], store_retry: StoreRetry, refusals: Refusals
) -> None:
    """Make a task for every verb known to `app`, and one for all others."""

    def instruct(task: Task[Any, Any], /, **body: Any) -> None:
        def receive() -> None:
            agent.receive(parse(Instruction, body))

        try:
            settle(store_retry, receive, partial(refusals.of_task, task.request))
        except Broken as error:
            _log.critical("the agent cannot go on", code=error.code, reason=error.message)
            stop_serving(store_retry, EX_SOFTWARE)
            raise Reject(error.message, requeue=True) from error
        # It is in the journal; what it comes to is told when it is answered.
        raise Ignore

    def hear(task: Task[Any, Any], /, **body: Any) -> None:
        refuse = partial(refusals.of_task, task.request)
        settle(store_retry, lambda: agent.hear(parse(Canary, body)), refuse)

    app.task(name=CANARY, bind=True, typing=False, send_events=False)(hear)
    for name in (*(COMPUTE + verb for verb in verbs), OTHER):
        app.task(name=name, bind=True, typing=False, send_events=False)(instruct)
