"""The scheduler's process: one task, which chooses and claims hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from celery import Celery, Task
from celery.exceptions import Ignore

from models.messages.base import parse
from models.messages.internal import SCHEDULER, SELECT_HOSTS, OutgoingMessage, SelectHosts
from tasks.app import make_app
from tasks.consuming.acknowledgement import settle
from tasks.consuming.hardened_consumer import Consuming
from tasks.consuming.store_retry import StoreRetry
from tasks.consuming.task_worker import serve
from tasks.flower.event_stream import EventStream
from tasks.refusals import Refusals, Send
from tasks.routing import work_queue

PREFETCH = 32

Publish: TypeAlias = Callable[[Sequence[OutgoingMessage]], object]
"""Sends messages of a committed transaction and forgets their outbox rows."""


class Scheduler(Protocol):
    """What the task calls. It may be called twice with the same message, from any thread."""

    def handle(self, message: SelectHosts) -> Sequence[OutgoingMessage]:
        """Claim hosts in one transaction; return the messages that it promised."""


def serve_scheduler(
    broker_url: str,
    scheduler: Scheduler,
    publish: Publish,
    send: Send,
    events: EventStream,
    threads: int = 2,
) -> int:
    """Run the scheduler's process until it is told to stop; return its exit code.

    `send` tells the conductor what it refuses. `events` speaks as `worker_name("scheduler")`; the
    caller closes it afterwards.
    """
    app = make_app(broker_url, (work_queue(SCHEDULER),))
    store_retry = StoreRetry()
    refusals = Refusals(send, SCHEDULER)
    register(app, scheduler, publish, store_retry, refusals)
    consuming = Consuming(PREFETCH, store_retry, events, record=refusals.of_message)
    return serve(app, SCHEDULER, consuming, threads)


def register(
    app: Celery,
    scheduler: Scheduler,
    publish: Publish,
    store_retry: StoreRetry,
    refusals: Refusals,
) -> None:
    """Make the task of the queue `scheduler` known to `app`."""

    def select_hosts(task: Task[Any, Any], /, **body: Any) -> None:
        refuse = partial(refusals.of_task, task.request)
        if settle(store_retry, lambda: answer(parse(SelectHosts, body)), refuse):
            # Its end is what it answered: without a host that is no success.
            raise Ignore

    def answer(message: SelectHosts) -> bool:
        outgoing_messages = scheduler.handle(message)
        publish(outgoing_messages)
        return bool(outgoing_messages)

    app.task(name=SELECT_HOSTS, bind=True, typing=False)(select_hosts)
