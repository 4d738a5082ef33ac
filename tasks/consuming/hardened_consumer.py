"""Celery's consumer, hardened: no message kills it, none is lost, and it waits for the store."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import kombu
import structlog
from amqp.exceptions import AccessRefused, NotAllowed, RecoverableConnectionError
from celery import bootsteps
from celery.exceptions import WorkerShutdown
from celery.worker.consumer import Consumer
from celery.worker.consumer.tasks import Tasks
from celery.worker.heartbeat import Heart
from celery.worker.state import maybe_shutdown
from kombu import Connection, Message
from kombu.common import ignore_errors

from models.errors import Rejected, Unreachable
from models.throttled_log import ThrottledLog
from tasks.consuming.reconnecting import Backoff
from tasks.consuming.store_retry import GivenBackError, StoreRetry
from tasks.flower.event_stream import EventStream, WorkerEvents
from tasks.message_validation import complaint, trimmed_headers
from tasks.report_limits import (
    UNREADABLE,
    ReportLimits,
    account_of_message,
    complaint_of_report_size,
)
from tasks.routing import DIFFERS, REPORTS_EXCHANGE, dead_letter_queue, declare_topology

EX_WRONG, EX_SOFTWARE = 2, 70
REFUSED = (AccessRefused, NotAllowed)
"""What a broker says of a wrong password and of a vhost that is not there or not ours."""

_REFUSED_WAIT_S = 5.0
_DEAD_PREFETCH = 16
_TICK_S = 1.0
_HEARTBEAT_S = 10.0
_STEPS = "celery.worker.consumer."

_log = structlog.get_logger(__name__)


def own_utc() -> datetime:
    """Return what time it is by this process's own clock."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Consuming:
    """What the consumer of one process needs to know.

    `prefetch` messages a queue are fetched ahead; `events` shows what is done. `hosts` are those
    whose queues are declared on connecting. `bury` takes a message of the queue `dead_letters`
    and returns when it is safe; `record` does so for a message that another queue held, with
    the queue and the reason why nobody takes it. Without one, the broker is to record it: a
    process that has a store does not rely on that. `other` is the task that answers for names of
    its prefix which this version does not know.
    """

    prefetch: int
    store_retry: StoreRetry
    events: EventStream
    hosts: tuple[str, ...] = ()
    record_dead_letter: Callable[[Message], None] | None = None
    record: Callable[[Message, str, str], None] | None = None
    other: str | None = None
    kinds: Mapping[str, Container[str]] = field(default_factory=dict)
    """The tasks of each queue, where one process consumes several; else all that it knows."""
    limits: ReportLimits | None = None
    """Bounds what comes from the queue of reports; without it nothing is bounded."""
    utc: Callable[[], datetime] = own_utc
    """By which clock messages have expired."""


class EventsStep(bootsteps.StartStopStep):
    """Tells Flower what the worker does, through our own stream instead of a second connection."""

    requires = (f"{_STEPS}connection:Connection",)

    def __init__(self, parent: HardenedConsumer, **kwargs: Any) -> None:
        """Begin without a voice."""
        parent.event_dispatcher = None
        super().__init__(parent, **kwargs)

    def start(self, parent: HardenedConsumer) -> None:
        """Speak, and say so regularly."""
        parent.event_dispatcher = WorkerEvents(parent.consuming.events)
        self._heart = Heart(parent.timer, parent.event_dispatcher, _HEARTBEAT_S)
        self._heart.start()

    def stop(self, parent: HardenedConsumer) -> None:
        """Say that the worker is gone."""
        if parent.event_dispatcher is not None:
            self._heart.stop()


class TasksStep(Tasks):
    """Celery's own, without the steps that it wants before it."""

    requires = (EventsStep,)


class _FewSteps(bootsteps.Blueprint):
    """Only what is needed: anything else would ask for rights that a host does not have."""

    name = "Consumer"
    default_steps = {
        f"{_STEPS}connection:Connection",
        EventsStep,
        TasksStep,
        f"{_STEPS}consumer:Evloop",
    }

    def shutdown(self, parent: Any) -> None:
        """Let every step close what it opened."""
        self.send_all(parent, "shutdown")


class HardenedConsumer(Consumer):
    """A consumer without remote control, gossip or delayed delivery, for quorum queues."""

    Blueprint = _FewSteps
    strategies: dict[str, Any]
    connection_errors: tuple[type[Exception], ...]
    call_soon_ack: Callable[..., Any]
    task_consumer: Any
    event_dispatcher: WorkerEvents | None

    def __init__(self, *args: Any, consuming: Consuming, **kwargs: Any) -> None:
        """Take what Celery's consumer takes, and `consuming`."""
        self.consuming = consuming
        self._backoff = Backoff()
        self._warnings = ThrottledLog()
        kwargs["initial_prefetch_count"] = consuming.prefetch
        super().__init__(*args, **kwargs)

    @property
    def max_prefetch_count(self) -> int:
        """The prefetch to come back to after a connection was lost."""
        return self.consuming.prefetch

    def connect(self) -> Connection:
        """Return a connection to a broker that has our topology, once the store answers.

        Declared each time: a broker may come back without its data. Pauses before it when the
        last connections were soon lost, as they are while our queue is missing.
        """
        _wait(self._backoff.pause_s(time.monotonic()))
        while self.consuming.store_retry.is_over():
            maybe_shutdown()
            time.sleep(_TICK_S)
        connection = super().connect()
        try:
            declare_topology(connection, self.consuming.hosts)
        except Rejected as error:
            if error.code == DIFFERS:
                _log.critical("the broker is set up otherwise", reason=error.message)
                raise WorkerShutdown(EX_WRONG) from error
            self._warnings.warn("the topology is taken to be declared", reason=error.message)
        except Unreachable as error:
            raise RecoverableConnectionError(str(error)) from error
        return connection

    def ensure_connected(self, conn: Connection) -> Connection:
        """Connect, trying for ever, at least every five seconds."""

        def complain(error: Exception, wait_s: float) -> None:
            _log.warning("no broker", at=conn.as_uri(), again_in_s=wait_s, reason=str(error))

        while True:
            try:
                conn.ensure_connection(
                    complain,
                    interval_start=1,
                    interval_step=1,
                    interval_max=5,
                    callback=maybe_shutdown,
                )
            except REFUSED as error:
                complain(error, _REFUSED_WAIT_S)
                _wait(_REFUSED_WAIT_S)
            else:
                self.first_connection_attempt = False
                return conn

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Say that the connection was lost, once a minute, and close what is left of it."""
        self._warnings.warn("the connection to the broker was lost", reason=str(exc))
        super().on_connection_error_after_connected(exc)

    def register_with_event_loop(self, hub: Any) -> None:
        """Look once a second whether to let go; this also bounds how late a signal is seen."""
        super().register_with_event_loop(hub)
        hub.call_repeatedly(_TICK_S, self._let_go_while_the_store_is_away)

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Message], None]:
        """Return Celery's handler behind a check that it survives every message it is given."""
        handle = super().create_task_handler(*args, **kwargs)

        def handle_checked(message: Message) -> None:
            self._rename(message)
            limits = self._limits_of(message)
            if limits is not None and limits.exceeds_rate(message):
                self.acknowledge(message)
                return
            wrong = (complaint_of_report_size(message) if limits is not None else None) or (
                complaint(message, self._known_to(message), self.consuming.utc())
            )
            if wrong is not None:
                self._refuse(message, wrong)
                return
            message.headers = trimmed_headers(message.headers, message.payload[1])
            handle(message)

        return handle_checked

    def on_decode_error(self, message: Message, exc: Exception) -> None:
        """Refuse what could not even be decoded."""
        self._refuse(message, f"it cannot be decoded: {exc}")

    def _known_to(self, message: Message) -> Container[str]:
        """Return the tasks of the queue that a message came from; its routing key may lie."""
        kinds = self.consuming.kinds
        return kinds.get(self._queue_of(message), ()) if kinds else self.strategies

    def _rename(self, message: Message) -> None:
        """Give a task of a newer version to the one that can say so to its sender."""
        task, other = message.headers.get("task"), self.consuming.other
        if other and isinstance(task, str) and task not in self.strategies:
            prefix = other.rpartition(".")[0] + "."
            if task.startswith(prefix):
                message.headers["task"] = other

    def keep(self, call: Callable[[], None], message: Message) -> None:
        """Run `call` on the pool until it has succeeded, then acknowledge the message."""
        acknowledge = functools.partial(self.acknowledge, message)
        self.pool.apply_async(self._kept, (call,), callback=acknowledge)

    def _kept(self, call: Callable[[], None]) -> bool:
        """Say whether the message is safe; if not, it returns when the connection closes."""
        try:
            self.consuming.store_retry.keep_trying(call)
        except GivenBackError:
            return False
        return True

    def acknowledge(self, message: Message, safe: bool = True) -> None:
        """Acknowledge a message that is `safe`, from any thread."""
        if safe:
            self.call_soon_ack(message.ack_log_error, _log, self.connection_errors)

    def _limits_of(self, message: Message) -> ReportLimits | None:
        """Return the limits for a message of the queue of reports, and of no other."""
        limits = self.consuming.limits
        return limits if limits and self._queue_of(message) == REPORTS_EXCHANGE.name else None

    def _refuse(self, message: Message, wrong: str) -> None:
        limits = self._limits_of(message)
        if limits is not None and not limits.keeps_refusal(account_of_message(message), UNREADABLE):
            self.acknowledge(message)
            return
        queue = self._queue_of(message)
        _log.warning("message refused", queue=queue, reason=wrong)
        record = self.consuming.record
        if record is None:
            message.reject_log_error(_log, self.connection_errors)
        else:
            self.keep(functools.partial(record, message, queue, wrong), message)

    def _queue_of(self, message: Message) -> str:
        """Return the queue that held a message: its routing key may be a sender's own."""
        tag = message.delivery_info.get("consumer_tag")
        consumed: dict[str, str]
        consumed = self.task_consumer._active_tags  # noqa: SLF001  # kombu has no other way to say it
        return next((queue for queue, known in consumed.items() if known == tag), "")

    def _let_go_while_the_store_is_away(self) -> None:
        if self.consuming.store_retry.is_over():
            raise RecoverableConnectionError("the store does not answer: giving messages back")


def _wait(seconds: float) -> None:
    """Wait, and end with the process should it be told to."""
    for _ in range(int(seconds / _TICK_S)):
        maybe_shutdown()
        time.sleep(_TICK_S)


class DeadLetterStep(bootsteps.ConsumerStep):
    """Consumes `dead_letters` beside the work: any bytes are taken, nothing is refused."""

    def __init__(self, parent: HardenedConsumer, **kwargs: Any) -> None:
        """Hand messages to the pool of `parent`."""
        self._parent = parent
        super().__init__(parent, **kwargs)

    def include_if(self, parent: HardenedConsumer) -> bool:
        """Only where somebody buries."""
        return parent.consuming.record_dead_letter is not None

    def get_consumers(self, channel: Any) -> list[kombu.Consumer]:
        """Return the one consumer."""
        consumer = kombu.Consumer(
            channel,
            queues=[dead_letter_queue()],
            on_message=self._take,
            on_decode_error=lambda message, _error: self._take(message),
            prefetch_count=_DEAD_PREFETCH,
        )
        return [consumer]

    def stop(self, parent: HardenedConsumer) -> None:
        """Take no more; the channel stays open for the acknowledgements of what is in hand."""
        if parent.connection is not None:
            for consumer in self.consumers or ():
                ignore_errors(parent.connection, consumer.cancel)

    def _take(self, message: Message) -> None:
        record_dead_letter = self._parent.consuming.record_dead_letter
        assert record_dead_letter is not None  # the step is included only then
        limits = self._parent.consuming.limits
        if limits is not None and not limits.keeps_dead_letter(message):
            self._parent.acknowledge(message)
            return
        self._parent.keep(functools.partial(record_dead_letter, message), message)
