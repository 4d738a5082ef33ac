"""The conductor's process: requests, reports and dead letters, one call each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from celery import Celery, Task
from celery.exceptions import Ignore

from models.messages.internal import (
    CONDUCTOR,
    ECHO,
    HEARTBEAT,
    INVENTORY_REPORT,
    PROGRESS,
    REFUSED,
    REGISTRATION,
    REPLY,
    REPORTS,
)
from models.messages.requests import REQUESTS
from tasks.app import make_app
from tasks.broker_accounts import account_in, misspoken
from tasks.conductor_dead_letters import TaskRunner, answerable, record, record_dead_letter
from tasks.conductor_port import Conductor
from tasks.consuming.hardened_consumer import Consuming, own_utc
from tasks.consuming.store_retry import StoreRetry
from tasks.consuming.task_worker import serve
from tasks.flower.event_stream import EventStream
from tasks.flower.flower_events import heard
from tasks.report_limits import ReportLimits
from tasks.routing import work_queue

PREFETCH = 32

KINDS: Mapping[str, frozenset[str]] = {
    CONDUCTOR: frozenset(REQUESTS),
    REPORTS: frozenset({REPLY, REGISTRATION, HEARTBEAT, INVENTORY_REPORT, PROGRESS, REFUSED}),
}
"""What each queue takes: a sender's exchange leads to one of them, and it may send nothing else."""


def serve_conductor(
    broker_url: str,
    conductor: Conductor,
    events: EventStream,
    threads: int = 4,
    limits: ReportLimits | None = None,
    utc: Callable[[], datetime] = own_utc,
) -> int:
    """Run the conductor's process until it is told to stop; return its exit code.

    `events` speaks as `worker_name("conductor")`; the caller closes it afterwards. By `utc` is
    judged which requests have expired.
    """
    limits = limits or ReportLimits(account_in(broker_url))
    app = make_app(broker_url, (work_queue(CONDUCTOR), work_queue(REPORTS)))
    store_retry = StoreRetry()
    register(app, conductor, store_retry, events, limits)
    consuming = Consuming(
        PREFETCH,
        store_retry,
        events,
        record_dead_letter=partial(record_dead_letter, conductor),
        record=partial(record, conductor),
        kinds=KINDS,
        limits=limits,
        utc=utc,
    )
    return serve(app, CONDUCTOR, consuming, threads)


def register(
    app: Celery,
    conductor: Conductor,
    store_retry: StoreRetry,
    events: EventStream | None = None,
    limits: ReportLimits | None = None,
) -> None:
    """Make the tasks of the queues `conductor` and `reports` known to `app`.

    `events` shows what hosts do, by those of their reports that count. `limits` says which
    refused reports are kept as dead letters: all, without it.
    """
    runner = TaskRunner(conductor, store_retry)
    own = account_in(app.conf.broker_url)

    def request(task: Task[Any, Any], /, **body: Any) -> None:
        sent: Any = task.request
        answer_to, fault = answerable(sent.reply_to)
        handle = partial(conductor.handle_request, task.name, sent.id, body, answer_to, fault)
        runner.run(task, CONDUCTOR, handle)
        # The id is the operation's: what it shows from here on is the operation's state.
        raise Ignore

    def report(handle: Callable[[Mapping[str, Any]], object]) -> Callable[..., None]:
        def run(task: Task[Any, Any], /, **body: Any) -> None:
            runner.run(task, REPORTS, partial(hear, task, body), _refusals_kept(task, limits))

        def hear(task: Task[Any, Any], body: Mapping[str, Any]) -> None:
            sent: Any = task.request
            refused = misspoken(task.name, body, sent.properties.get("user_id"), own)
            if refused is not None:
                raise refused
            if handle(body) is not False and events is not None and body.get("host") != ECHO:
                events.add(heard(task.name, body))

        return run

    for name in REQUESTS:
        app.task(name=name, bind=True, typing=False)(request)
    for name, handle in (
        (REPLY, conductor.handle_reply),
        (REGISTRATION, conductor.handle_registration),
        (HEARTBEAT, conductor.handle_heartbeat),
        (INVENTORY_REPORT, conductor.handle_inventory_report),
        (PROGRESS, conductor.handle_progress),
        (REFUSED, conductor.handle_refusal),
    ):
        app.task(name=name, bind=True, typing=False, send_events=False)(report(handle))


def _refusals_kept(task: Task[Any, Any], limits: ReportLimits | None) -> Callable[[str], bool]:
    """Return what says, by the code of a refusal, whether a record of this report is kept."""
    sent: Any = task.request
    account = sent.properties.get("user_id") or ""

    def is_kept(code: str) -> bool:
        return limits is None or limits.keeps_refusal(account, code)

    return is_kept
