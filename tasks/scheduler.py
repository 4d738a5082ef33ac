"""The scheduler's process: one task, which chooses and claims hosts."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from celery import Celery
from celery.exceptions import Ignore
from kombu import Message

from conductor.store.records import DeadLetter
from models.messages.base import parse
from models.messages.letters import SCHEDULER, SELECT_HOSTS, Letter, SelectHosts
from tasks.app import make_app
from tasks.consumer import Consuming
from tasks.dead_letters import keep_dead_letter, refused_letter
from tasks.events import EventStream
from tasks.patience import Patience
from tasks.routing import work_queue
from tasks.settling import settle
from tasks.worker import serve

PREFETCH = 32

Publish: TypeAlias = Callable[[Sequence[Letter]], object]
"""Sends letters of a committed transaction and forgets their outbox rows."""

Keep: TypeAlias = Callable[[DeadLetter], None]
"""Keeps a message that could not be handled; the same id again changes nothing."""


class Scheduler(Protocol):
    """What the task calls. It may be called twice with the same message, from any thread."""

    def handle(self, message: SelectHosts) -> Sequence[Letter]:
        """Claim hosts in one transaction; return the letters that it promised."""


def serve_scheduler(
    broker_url: str,
    scheduler: Scheduler,
    publish: Publish,
    keep: Keep,
    events: EventStream,
    threads: int = 2,
) -> int:
    """Run the scheduler's process until it is told to stop; return its exit code.

    `events` speaks as `node_name("scheduler")`; the caller closes it afterwards.
    """
    app = make_app(broker_url, (work_queue(SCHEDULER),))
    patience = Patience()
    register(app, scheduler, publish, patience)
    consuming = Consuming(PREFETCH, patience, events, record=functools.partial(record, keep))
    return serve(app, SCHEDULER, consuming, threads)


def record(keep: Keep, message: Message, queue: str, reason: str) -> None:
    """Keep a message that nobody takes; raise only while the store is away."""
    keep_dead_letter(keep, refused_letter(message, queue, reason, time.time()))


def register(app: Celery, scheduler: Scheduler, publish: Publish, patience: Patience) -> None:
    """Make the task of the queue `scheduler` known to `app`."""

    def select_hosts(**body: Any) -> None:
        if settle(patience, lambda: answer(parse(SelectHosts, body))):
            # Its end is what it answered: without a host that is no success.
            raise Ignore

    def answer(message: SelectHosts) -> bool:
        letters = scheduler.handle(message)
        publish(letters)
        return bool(letters)

    app.task(name=SELECT_HOSTS, typing=False)(select_hosts)
