"""The scheduler's process: one task, which chooses and claims hosts."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from celery import Celery
from celery.exceptions import Ignore
from kombu import Message

from conductor.store import DeadLetter
from models.messages.base import parse
from models.messages.internal import SCHEDULER, SELECT_HOSTS, OutgoingMessage, SelectHosts
from tasks.app import make_app
from tasks.consuming.acknowledgement import settle
from tasks.consuming.hardened_consumer import Consuming
from tasks.consuming.store_retry import StoreRetry
from tasks.consuming.task_worker import serve
from tasks.dead_letter_reading import keep_dead_letter, refused_message
from tasks.flower.event_stream import EventStream
from tasks.routing import work_queue

PREFETCH = 32

Publish: TypeAlias = Callable[[Sequence[OutgoingMessage]], object]
"""Sends messages of a committed transaction and forgets their outbox rows."""

Keep: TypeAlias = Callable[[DeadLetter], None]
"""Keeps a message that could not be handled; the same id again changes nothing."""


class Scheduler(Protocol):
    """What the task calls. It may be called twice with the same message, from any thread."""

    def handle(self, message: SelectHosts) -> Sequence[OutgoingMessage]:
        """Claim hosts in one transaction; return the messages that it promised."""


def serve_scheduler(
    broker_url: str,
    scheduler: Scheduler,
    publish: Publish,
    keep: Keep,
    events: EventStream,
    threads: int = 2,
) -> int:
    """Run the scheduler's process until it is told to stop; return its exit code.

    `events` speaks as `worker_name("scheduler")`; the caller closes it afterwards.
    """
    app = make_app(broker_url, (work_queue(SCHEDULER),))
    store_retry = StoreRetry()
    register(app, scheduler, publish, store_retry)
    consuming = Consuming(PREFETCH, store_retry, events, record=functools.partial(record, keep))
    return serve(app, SCHEDULER, consuming, threads)


def record(keep: Keep, message: Message, queue: str, reason: str) -> None:
    """Keep a message that nobody takes; raise only while the store is away."""
    keep_dead_letter(keep, refused_message(message, queue, reason, time.time()))


def register(app: Celery, scheduler: Scheduler, publish: Publish, store_retry: StoreRetry) -> None:
    """Make the task of the queue `scheduler` known to `app`."""

    def select_hosts(**body: Any) -> None:
        if settle(store_retry, lambda: answer(parse(SelectHosts, body))):
            # Its end is what it answered: without a host that is no success.
            raise Ignore

    def answer(message: SelectHosts) -> bool:
        outgoing_messages = scheduler.handle(message)
        publish(outgoing_messages)
        return bool(outgoing_messages)

    app.task(name=SELECT_HOSTS, typing=False)(select_hosts)
