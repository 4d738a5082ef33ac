"""Numbers for Prometheus: how the system stands is asked at each scrape, what happens is counted.

How it stands (operations, outbox, queues) every conductor can tell alike, so take the maximum over
processes, not the sum. A scrape costs four statements and a round trip a queue. The statements
go by index over what lives, whatever the history: with a million ended operations, ten thousand
living ones and a hundred thousand messages in the outbox they take some 25 ms on PostgreSQL.
"""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    start_http_server,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from conductor.liveness import UNANSWERED_AFTER_S, unanswered
from conductor.operation_status import OperationStatus
from conductor.operations.engine.wait_reasons import ON_HOST, ON_SCHEDULER, is_dispatch
from conductor.scheduling.scheduling_service import Scheduler
from conductor.settings import Settings
from conductor.store import StartsWith, Store, Tally, UnitOfWork
from models.errors import Conflict, Rejected, Unreachable
from models.messages.internal import OutgoingMessage, SelectHosts
from tasks.queue_depths import Depth

Depths = Callable[[Iterable[str]], Mapping[str, Depth]]
"""Asks the broker for the depths of our queues and of those of the hosts given."""

_OPERATION_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800, 7_200)
_SCHEDULING_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class SystemMetrics(Collector):
    """How the system stands, asked anew at each scrape; a service that is away is said to be."""

    def __init__(
        self, store: Store, depths: Depths | None, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._depths = depths
        self._clock = clock
        self._seen_empty: dict[str, float] = {}

    def describe(self) -> Iterable[Metric]:
        """Name nothing beforehand: registering must not ask a database that may be away."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Ask database and broker."""
        tallies: Sequence[Tally] = ()
        try:
            with self._store.read() as uow:
                tallies = uow.operations.census()
                yield from (*_operations(tallies, uow.now), *_unanswered(uow))
                yield from (*_outbox(uow), *_guests(uow))
            yield _up("database", 1)
        except (Conflict, Unreachable):
            yield _up("database", 0)
        if self._depths is not None:
            yield from self._queues(self._depths, tallies)

    def _queues(self, depths: Depths, tallies: Sequence[Tally]) -> Iterator[Metric]:
        # Nothing of a host that nobody waits for is of interest, and there may be thousands.
        hosts = {
            tally.waiting_on.removeprefix(ON_HOST)
            for tally in tallies
            if tally.waiting_on is not None and tally.waiting_on.startswith(ON_HOST)
        }
        try:
            found = depths(sorted(hosts))
        except Unreachable:
            yield _up("broker", 0)
            return
        yield _up("broker", 1)
        yield from _depths_of(found)
        yield self._not_empty(found)

    def _not_empty(self, found: Mapping[str, Depth]) -> Metric:
        gauge = GaugeMetricFamily(
            "conductor_queue_not_empty_seconds",
            "Since the queue was last seen empty: no message in it is older.",
            labels=["queue"],
        )
        now = self._clock()
        for queue, depth in found.items():
            if not depth.messages:
                self._seen_empty[queue] = now
            gauge.add_metric([queue], now - self._seen_empty.setdefault(queue, now))
        return gauge


class Ends:
    """Counts the operations that a conductor ends, by how long they took."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "conductor_operation_seconds",
            "From acceptance to the end, of operations that ended here.",
            ["kind", "state"],
            buckets=_OPERATION_BUCKETS,
            registry=registry,
        )

    def note(self, status: OperationStatus) -> None:
        """Count an operation if it ended just now."""
        record = status.record
        if status.ended_now and record.ended_at is not None:
            took_s = record.ended_at - record.created_at
            self._seconds.labels(record.kind, record.state.value).observe(took_s)


class TimedScheduler:
    """A scheduler whose decisions are timed."""

    def __init__(self, scheduler: Scheduler, registry: CollectorRegistry) -> None:
        self._scheduler = scheduler
        self._seconds = Histogram(
            "conductor_scheduling_seconds",
            "From a question to the claim or the refusal, tries included.",
            buckets=_SCHEDULING_BUCKETS,
            registry=registry,
        )

    def handle(self, message: SelectHosts) -> Sequence[OutgoingMessage]:
        """Choose and claim hosts, as the scheduler does."""
        with self._seconds.time():
            return self._scheduler.handle(message)


def conflict_counter(registry: CollectorRegistry) -> Callable[[str], None]:
    """Return what counts a claim that found something else than was planned, by what it found."""
    counter = Counter(
        "conductor_claim_conflicts",
        "Claims that found their host or their question changed, and were made anew.",
        ["code"],
        registry=registry,
    )
    return lambda code: counter.labels(code).inc()


def refusal_counter(registry: CollectorRegistry) -> Callable[[str], None]:
    """Return what counts reports of hosts that are not taken, by the code of the reason."""
    counter = Counter(
        "conductor_refused_reports",
        "Reports that were refused, or acknowledged unread because their account sent too many.",
        ["code"],
        registry=registry,
    )
    return lambda code: counter.labels(code).inc()


@contextmanager
def served(settings: Settings, registry: CollectorRegistry) -> Iterator[None]:
    """Answer scrapes on the port that is set, if one is; raise `Rejected` where it is taken."""
    if not settings.metrics_port:
        yield
        return
    ProcessCollector(registry=registry)
    where = (settings.metrics_port, settings.metrics_address)
    try:
        server, _ = start_http_server(*where, registry=registry)
    except OSError as error:
        at = f"{settings.metrics_address}:{settings.metrics_port}"
        message = f"CONDUCTOR_METRICS_PORT: {at}: {error.strerror or error}"
        raise Rejected("address_unusable", message, key="CONDUCTOR_METRICS_PORT") from None
    try:
        yield
    finally:
        server.shutdown()


def _operations(tallies: Sequence[Tally], now: float) -> Iterator[Metric]:
    counts: dict[Any, int] = defaultdict(int)
    oldest: dict[Any, float] = {}
    oldest_dispatch: dict[str, float] = {}
    for tally in tallies:
        by = (tally.kind, tally.state.value)
        counts[by] += tally.count
        oldest[by] = min(oldest.get(by, now), tally.oldest_at)
        if tally.waiting_on is not None and is_dispatch(tally.waiting_on):
            since = oldest_dispatch.get(tally.waiting_on, now)
            oldest_dispatch[tally.waiting_on] = min(since, tally.oldest_at)
    labels = ["kind", "state"]
    yield _gauge(
        "conductor_operations", "Operations that have not ended, and stuck ones.", labels, counts
    )
    yield _gauge(
        "conductor_operation_oldest_seconds",
        "Age of the oldest of them.",
        labels,
        {by: now - at for by, at in oldest.items()},
    )
    yield _gauge(
        "conductor_ask_oldest_seconds",
        "Age of the oldest operation that waits for an answer: no ask of the queue is older.",
        ["on"],
        {(on,): now - at for on, at in oldest_dispatch.items()} or {(ON_SCHEDULER,): 0.0},
    )


def _unanswered(uow: UnitOfWork) -> Iterator[Metric]:
    """Yield dispatches unanswered for long; a host is named, an operation never (`health`)."""
    found = unanswered(uow)
    oldest: dict[Any, float] = {}
    for record in found:
        by = (record.waiting_on, str((record.waiting or {}).get("verb")))
        oldest[by] = max(oldest.get(by, 0.0), uow.now - (record.asked_at or uow.now))
    counts = Counts(
        (operation.waiting_on, str((operation.waiting or {}).get("verb"))) for operation in found
    )
    help_text = f"Dispatches that nobody has answered for {UNANSWERED_AFTER_S:.0f} s"
    labels = ["on", "verb"]
    yield _gauge("conductor_unanswered_asks", f"{help_text}.", labels, counts)
    yield _gauge("conductor_unanswered_oldest_seconds", f"{help_text}: the oldest.", labels, oldest)


def _outbox(uow: UnitOfWork) -> Iterator[Metric]:
    oldest_at = uow.outbox.oldest_at()
    lag_s = 0.0 if oldest_at is None else max(0.0, uow.now - oldest_at)
    waiting = float(uow.outbox.count())
    yield GaugeMetricFamily(
        "conductor_outbox_letters", "Messages in the outbox, sent or not.", value=waiting
    )
    yield GaugeMetricFamily(
        "conductor_outbox_oldest_seconds", "Age of the oldest message in the outbox.", value=lag_s
    )


def _guests(uow: UnitOfWork) -> Iterator[Metric]:
    troubled = uow.registrations.where(troubled=True)
    yield _gauge(
        "conductor_unexpected_guests",
        "Guests that hosts have and should not; they are left alone.",
        ["host"],
        {
            (registration.host,): registration.unexpected_count
            for registration in troubled
            if registration.unexpected_count
        },
    )
    yield _gauge(
        "conductor_refused_workers",
        "Hosts whose name another worker has asked for.",
        ["host"],
        {(registration.host,): 1 for registration in troubled if registration.refused},
    )
    degraded = uow.hosts.where(degraded=StartsWith(""))
    yield _gauge(
        "conductor_degraded_hosts",
        "Hosts that take no new guests, by the beginning of the reason that `hosts show` has.",
        ["host", "why"],
        {(host.name, (host.degraded or "").partition(":")[0]): 1 for host in degraded},
    )


def _depths_of(found: Mapping[str, Depth]) -> Iterator[Metric]:
    messages = {(queue,): depth.messages for queue, depth in found.items()}
    consumers = {(queue,): depth.consumers for queue, depth in found.items()}
    help_text = "of the hosts' only those that are waited for"
    yield _gauge(
        "conductor_queue_messages",
        f"Messages that nobody has taken; {help_text}.",
        ["queue"],
        messages,
    )
    yield _gauge("conductor_queue_consumers", f"Consumers; {help_text}.", ["queue"], consumers)


def _up(service: str, value: int) -> Metric:
    gauge = GaugeMetricFamily("conductor_up", "Whether a service answered.", labels=["service"])
    gauge.add_metric([service], value)
    return gauge


def _gauge(
    name: str, help_text: str, labels: Sequence[str], values: Mapping[Any, float]
) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(name, help_text, labels=list(labels))
    for by, value in values.items():
        gauge.add_metric(list(by), value)
    return gauge
