"""The conductor's process: requests, reports and dead letters, one call each."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import structlog
from celery import Celery, Task
from celery.exceptions import Ignore
from kombu import Message

from conductor.store import DeadLetter
from models.errors import Conflict, Rejected, Unreachable
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
from models.secrets import shown
from tasks.app import make_app
from tasks.broker_accounts import account_in, misspoken
from tasks.consuming.acknowledgement import settle
from tasks.consuming.hardened_consumer import Consuming
from tasks.consuming.store_retry import StoreRetry
from tasks.consuming.task_worker import serve
from tasks.dead_letter_reading import (
    dead_letter_of,
    keep_dead_letter,
    read_dead_letter,
    refused_message,
    request_of,
)
from tasks.flower.event_stream import EventStream
from tasks.flower.flower_events import heard
from tasks.report_limits import ReportLimits
from tasks.routing import is_ours, work_queue

PREFETCH = 32

KINDS: Mapping[str, frozenset[str]] = {
    CONDUCTOR: frozenset(REQUESTS),
    REPORTS: frozenset({REPLY, REGISTRATION, HEARTBEAT, INVENTORY_REPORT, PROGRESS, REFUSED}),
}
"""What each queue takes: a sender's exchange leads to one of them, and it may send nothing else."""

_FAILED = "handler_failed"

_log = structlog.get_logger(__name__)


class Conductor(Protocol):
    """What the tasks call. Each may be called twice with the same message, from any thread."""

    def handle_request(
        self,
        task: str,
        operation_id: str,
        body: Mapping[str, Any],
        reply_to: str | None = None,
        fault: Rejected | None = None,
    ) -> None:
        """Accept a request; what is wrong with it is answered, not raised.

        With a `fault` it is refused for that: its message could not be taken.
        """

    def handle_reply(self, body: Mapping[str, Any]) -> bool:
        """Take the answer to an ask, say whether it was awaited; raise `Rejected` if malformed."""

    def handle_registration(self, body: Mapping[str, Any]) -> None:
        """Take in a host that has started; raise `Rejected` when it is malformed."""

    def handle_heartbeat(self, body: Mapping[str, Any]) -> None:
        """Note that a host lives; raise `Rejected` when it is malformed."""

    def handle_inventory_report(self, body: Mapping[str, Any]) -> None:
        """Compare a host's guests with what is known; raise `Rejected` when it is malformed."""

    def handle_progress(self, body: Mapping[str, Any]) -> bool:
        """Note how far a copy is, say whether its host was asked; raise `Rejected` if malformed."""

    def handle_refusal(self, body: Mapping[str, Any]) -> None:
        """Keep a message that its receiver refused; raise `Rejected` when it is malformed."""

    def handle_dead_letter(self, dead_letter: DeadLetter) -> None:
        """Keep a message that could not be handled; the same id again changes nothing."""


def serve_conductor(
    broker_url: str,
    conductor: Conductor,
    events: EventStream,
    threads: int = 4,
    limits: ReportLimits | None = None,
) -> int:
    """Run the conductor's process until it is told to stop; return its exit code.

    `events` speaks as `worker_name("conductor")`; the caller closes it afterwards.
    """
    limits = limits or ReportLimits(account_in(broker_url))
    app = make_app(broker_url, (work_queue(CONDUCTOR), work_queue(REPORTS)))
    store_retry = StoreRetry()
    register(app, conductor, store_retry, events, limits)
    consuming = Consuming(
        PREFETCH,
        store_retry,
        events,
        record_dead_letter=functools.partial(record_dead_letter, conductor),
        record=functools.partial(record, conductor),
        kinds=KINDS,
        limits=limits,
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

    `events` is told what hosts do, by those of their reports that count. `limits` says which
    refused reports are kept as dead letters: all, without it.
    """
    shell = _Shell(conductor, store_retry)
    own = account_in(app.conf.broker_url)

    def request(task: Task[Any, Any], /, **body: Any) -> None:
        asked: Any = task.request
        answer_to, fault = _answerable(asked.reply_to)
        shell.run(
            task,
            CONDUCTOR,
            lambda: conductor.handle_request(task.name, asked.id, body, answer_to, fault),
        )
        # The id is the operation's: what it shows from here on is the operation's state.
        raise Ignore

    def report(handle: Callable[[Mapping[str, Any]], object]) -> Callable[..., None]:
        def run(task: Task[Any, Any], /, **body: Any) -> None:
            shell.run(task, REPORTS, lambda: hear(task, body), _refusals_kept(task, limits))

        def hear(task: Task[Any, Any], body: Mapping[str, Any]) -> None:
            asked: Any = task.request
            refused = misspoken(task.name, body, asked.properties.get("user_id"), own)
            if refused is not None:
                raise refused
            if handle(body) is not False and events is not None and body.get("host") != ECHO:
                events.tell(heard(task.name, body))

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


def record_dead_letter(conductor: Conductor, message: Message) -> None:
    """Keep a message of the queue `dead_letters`; raise only while the store is away."""
    _keep(conductor, message, read_dead_letter(message, time.time()))


def record(conductor: Conductor, message: Message, queue: str, reason: str) -> None:
    """Keep a message that `queue` held and nobody takes; raise only while the store is away.

    Written here and not left to the broker: RabbitMQ 3.10 stops dead-lettering for a whole node
    over a header `x-death` that it did not make itself.
    """
    _keep(conductor, message, refused_message(message, queue, reason, time.time()))


def _keep(conductor: Conductor, message: Message, dead_letter: DeadLetter) -> None:
    keep_dead_letter(conductor.handle_dead_letter, dead_letter)
    request = request_of(dead_letter, message)
    if request is not None:
        fault = Rejected("message_refused", dead_letter.reason)
        answer_to, _ = _answerable(request.reply_to)
        conductor.handle_request(request.task, request.id, request.body, answer_to, fault)


def _answerable(reply_to: str | None) -> tuple[str | None, Rejected | None]:
    """Return where to answer, or why nowhere: what we send counts as ours in queues of ours."""
    if not reply_to or not is_ours(reply_to):
        return reply_to or None, None
    message = f"reply_to is {shown(reply_to)}: should be a queue of the sender's own"
    return None, Rejected("reply_to_invalid", message, key="reply_to")


def _refusals_kept(task: Task[Any, Any], limits: ReportLimits | None) -> Callable[[str], bool]:
    """Return what says, by the code of a refusal, whether a record of this report is kept."""
    asked: Any = task.request
    account = asked.properties.get("user_id") or ""

    def is_kept(code: str) -> bool:
        return limits is None or limits.keeps_refusal(account, code)

    return functools.cache(is_kept)  # a message that is tried again is counted once


class _Shell:
    """Runs handlers; the message of one that fails is kept as a dead letter that says why."""

    def __init__(self, conductor: Conductor, store_retry: StoreRetry) -> None:
        self._conductor = conductor
        self._store_retry = store_retry

    def run(
        self,
        task: Task[Any, Any],
        queue: str,
        call: Callable[[], None],
        is_kept: Callable[[str], bool] = lambda _code: True,
    ) -> None:
        """Run `call`; of what it raises, `is_kept` says by its code whether a record is kept."""
        settle(self._store_retry, lambda: self._kept(task, queue, call, is_kept))

    def _kept(
        self,
        task: Task[Any, Any],
        queue: str,
        call: Callable[[], None],
        is_kept: Callable[[str], bool],
    ) -> None:
        try:
            call()
        except (Unreachable, Conflict):
            raise
        except Rejected as error:
            if is_kept(error.code):
                self._record_dead_letter(task, queue, f"{error.code}: {error.message}")
        except Exception as error:  # noqa: BLE001  # whatever it is, the message must not vanish
            if is_kept(_FAILED):
                _log.exception("a handler failed", task=task.name, id=task.request.id)
                self._record_dead_letter(
                    task, queue, f"its handler failed: {type(error).__name__}: {error}"
                )

    def _record_dead_letter(self, task: Task[Any, Any], queue: str, reason: str) -> None:
        dead_letter = dead_letter_of(task.request, queue, reason, time.time())
        self._conductor.handle_dead_letter(dead_letter)
