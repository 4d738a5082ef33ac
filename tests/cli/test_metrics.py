"""The numbers for Prometheus: right, present when something else is away, and harmless to ask."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from conductor.operation_status import OperationStatus
from conductor.processes.metrics_exporter import (
    Ends,
    SystemMetrics,
    TimedScheduler,
    conflict_counter,
    served,
)
from conductor.scheduling.scheduling_service import Scheduler
from conductor.settings import Settings
from conductor.store import UnitOfWork
from conductor.store.memory.memory_store import MemoryStore
from models.errors import Rejected, Unreachable
from models.lifecycle import OperationState
from models.messages.internal import SelectHosts, Token
from tasks.queue_depths import Depth
from tests.contracts.store import records
from tests.limits import limit_s

S = OperationState


def filled() -> MemoryStore:
    store = MemoryStore(clock=lambda: 100.0)
    with store.begin() as uow:
        for name, state, created_at, waiting_on in (
            ("a", S.DISPATCHED, 40.0, "compute:beta"),
            ("b", S.DISPATCHED, 90.0, "compute:beta"),
            ("c", S.SCHEDULING, 95.0, "scheduler"),
            ("d", S.STUCK, 10.0, None),
            ("e", S.SUCCEEDED, 1.0, None),
        ):
            uow.operations.add(
                records.an_operation(
                    name, kind="k", state=state, created_at=created_at, waiting_on=waiting_on
                )
            )
        uow.outbox.put(records.an_outbox_row("m", created_at=97.5))
    return store


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, labels)


def standing(store: MemoryStore, depths: Mapping[str, Depth] | None = None) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(SystemMetrics(store, None if depths is None else lambda _: depths))
    return registry


def test_operations_are_counted_and_aged_by_kind_and_state() -> None:
    registry = standing(filled())
    count, oldest = "conductor_operations", "conductor_operation_oldest_seconds"
    assert value(registry, count, kind="k", state="DISPATCHED") == 2
    assert value(registry, oldest, kind="k", state="DISPATCHED") == 60
    assert value(registry, count, kind="k", state="STUCK") == 1
    assert value(registry, oldest, kind="k", state="STUCK") == 90
    assert value(registry, count, kind="k", state="SUCCEEDED") is None


def test_the_oldest_ask_and_the_lag_of_the_outbox_are_told() -> None:
    registry = standing(filled())
    assert value(registry, "conductor_ask_oldest_seconds", on="compute:beta") == 60
    assert value(registry, "conductor_ask_oldest_seconds", on="scheduler") == 5
    assert value(registry, "conductor_outbox_letters") == 1
    assert value(registry, "conductor_outbox_oldest_seconds") == 2.5


def test_an_idle_system_says_zero_rather_than_nothing() -> None:
    registry = standing(MemoryStore())
    assert value(registry, "conductor_outbox_oldest_seconds") == 0
    assert value(registry, "conductor_ask_oldest_seconds", on="scheduler") == 0


def test_hosts_that_are_not_as_they_should_be_are_told_with_the_beginning_of_the_reason() -> None:
    store = filled()
    with store.begin() as uow:
        uow.hosts.add(replace(records.a_host("odd"), degraded="guests are not as placed: vm has 1"))
        uow.hosts.add(records.a_host("well"))
    metrics = standing(store)
    name = "conductor_degraded_hosts"
    assert value(metrics, name, host="odd", why="guests are not as placed") == 1.0
    assert "well" not in generate_latest(metrics).decode()


def test_queues_are_asked_for_the_hosts_that_somebody_waits_for() -> None:
    asked: list[str] = []

    def depths(hosts: Iterable[str]) -> Mapping[str, Depth]:
        asked.extend(hosts)
        return {"conductor": Depth(3, 2)}

    registry = CollectorRegistry()
    registry.register(SystemMetrics(filled(), depths))
    assert value(registry, "conductor_queue_messages", queue="conductor") == 3
    assert value(registry, "conductor_queue_consumers", queue="conductor") == 2
    assert set(asked) == {"beta"}


def test_a_queue_is_timed_from_when_it_was_last_seen_empty() -> None:
    now, messages = [10.0], [0]
    registry = CollectorRegistry()
    registry.register(
        SystemMetrics(MemoryStore(), lambda _: {"q": Depth(messages[0], 1)}, clock=lambda: now[0])
    )

    def age() -> float | None:
        return value(registry, "conductor_queue_not_empty_seconds", queue="q")

    assert age() == 0
    messages[0], now[0] = 5, 14.0
    assert age() == 4
    now[0] = 20.0
    assert age() == 10
    messages[0] = 0
    assert age() == 0


def test_what_is_away_is_said_to_be_and_hides_nothing_else() -> None:
    class Away(MemoryStore):
        def read(self) -> AbstractContextManager[UnitOfWork]:
            raise Unreachable("database_unreachable", "gone")

    def no_broker(_: Iterable[str]) -> Mapping[str, Depth]:
        raise Unreachable("broker_unreachable", "gone")

    registry = CollectorRegistry()
    registry.register(SystemMetrics(Away(), lambda _: {"q": Depth(1, 1)}))
    assert value(registry, "conductor_up", service="database") == 0
    assert value(registry, "conductor_queue_messages", queue="q") == 1
    registry = CollectorRegistry()
    registry.register(SystemMetrics(filled(), no_broker))
    assert value(registry, "conductor_up", service="broker") == 0
    assert value(registry, "conductor_up", service="database") == 1
    assert value(registry, "conductor_outbox_letters") == 1


def test_an_end_is_counted_when_it_happens_and_not_when_it_is_seen_again() -> None:
    registry = CollectorRegistry()
    ends = Ends(registry)
    ended = records.an_operation(kind="k", state=S.FAILED, created_at=90.0, ended_at=100.0)
    running = records.an_operation(kind="k", state=S.RUNNING)
    for status in (
        OperationStatus(running, at=95.0),
        OperationStatus(ended, at=100.0),
        OperationStatus(ended, at=101.0),
    ):
        ends.note(status)
    assert value(registry, "conductor_operation_seconds_count", kind="k", state="FAILED") == 1
    assert value(registry, "conductor_operation_seconds_sum", kind="k", state="FAILED") == 10


def test_decisions_are_timed_and_conflicts_counted() -> None:
    registry = CollectorRegistry()
    count = conflict_counter(registry)
    scheduler = TimedScheduler(Scheduler(MemoryStore(), on_conflict=count), registry)
    token = Token(operation_id="o", step="s", attempt=1, sequence=1)
    assert scheduler.handle(SelectHosts(token=token, host_requests=())) == []
    count("host_moved")
    assert value(registry, "conductor_scheduling_seconds_count") == 1
    assert value(registry, "conductor_claim_conflicts_total", code="host_moved") == 1


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def test_they_are_served_on_the_port_that_is_set_and_on_none_by_default() -> None:
    registry = standing(filled())
    with served(Settings(), registry):
        pass
    port = free_port()
    with served(Settings(metrics_port=port), registry):
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/metrics", timeout=limit_s(5)
        ) as answer:
            text = answer.read().decode()
        assert 'conductor_operations{kind="k",state="STUCK"} 1.0' in text
        with (
            pytest.raises(Rejected, match="CONDUCTOR_METRICS_PORT"),
            served(Settings(metrics_port=port), CollectorRegistry()),
        ):
            pass


def test_registering_asks_nobody() -> None:
    def never(_: Iterable[str]) -> Mapping[str, Depth]:
        raise AssertionError("asked")

    CollectorRegistry().register(SystemMetrics(MemoryStore(), never))


def test_the_text_names_no_instance_and_no_project() -> None:
    text = generate_latest(standing(filled())).decode()
    assert "p-1" not in text
