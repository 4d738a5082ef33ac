"""Builds a second over RabbitMQ and PostgreSQL, next to empty Celery tasks on the same broker.

One conductor, one scheduler and ten compute workers, each a process; everything on this machine.
The yardstick: a build costs seven messages, so a system that did nothing else could build at a
seventh of the rate of empty tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from celery import Celery
from kombu import Exchange, Queue

from conductor.store import Store
from conductor.store.open_store import open_store
from models.ids import new_operation_id
from models.tables.schema_upgrade import upgrade
from tasks.app import make_app
from tasks.routing import declare_topology
from tests.benchmarks.broker import empty_task_rate
from tests.benchmarks.processes import running
from tests.benchmarks.report import Figure, report
from tests.operations.world import CONTEXT

HOSTS = 10
BUILDS = 400
EMPTY_TASKS = 2_000
MESSAGES_PER_BUILD = 7  # request, ask, claim, spawn, its answer, and two notices
FLAVOR = {"vcpus": 1, "memory_mb": 256}


@pytest.mark.timeout(600)
def test_builds_a_second_over_services(
    fresh_vhost: Callable[[], str], database_url: str, redis_url: str, tmp_path: Path
) -> None:
    empty = empty_task_rate(_declared(fresh_vhost()), tasks=EMPTY_TASKS)
    broker_url = fresh_vhost()
    upgrade(database_url)
    store = open_store(database_url)
    environ = {
        "CONDUCTOR_BROKER_URL": broker_url,
        "CONDUCTOR_DATABASE_URL": database_url,
        "CONDUCTOR_RESULT_URL": redis_url,
        "CONDUCTOR_STATE_DIR": str(tmp_path),
    }
    with running(environ, tmp_path, HOSTS):
        _wait(lambda: _hosts(store) == HOSTS)
        _build(broker_url, store, 50)
        rate = BUILDS / _build(broker_url, store, BUILDS)
    again = empty_task_rate(_declared(fresh_vhost()), tasks=EMPTY_TASKS)
    yardstick = (empty + again) / 2
    report(
        "services",
        [
            Figure("builds to ACTIVE", rate, "1/s"),
            Figure("empty Celery tasks before", empty, "1/s"),
            Figure("empty Celery tasks after", again, "1/s"),
            Figure("messages a build", MESSAGES_PER_BUILD, ""),
            Figure(
                "build rate / (empty rate / messages)",
                rate / (yardstick / MESSAGES_PER_BUILD),
                "",
                ">= 0.25",
            ),
        ],
    )


def _build(broker_url: str, store: Store, builds: int) -> float:
    """Return the seconds from the first request sent to the last instance that is ACTIVE."""
    exchange = Exchange("conductor", "topic", durable=True, no_declare=True)
    queue = Queue("conductor", exchange, routing_key="conductor", no_declare=True)
    app = Celery(broker=broker_url)
    app.conf.task_queues = [queue]
    app.conf.task_create_missing_queues = False
    ids: list[str] = [new_operation_id() for _ in range(builds)]
    began = time.monotonic()
    with app.producer_pool.acquire(block=True) as producer:
        for number, operation_id in enumerate(ids):
            body = {"name": f"vm-{number}", "flavor": FLAVOR, "image": {"id": "img"}}
            app.send_task(
                "conductor.build_instances",
                kwargs={"context": CONTEXT, "instance": body},
                task_id=operation_id,
                queue="conductor",
                producer=producer,
            )
    _wait(lambda: _ended(store, ids[-1:]) == 1)
    _wait(lambda: _ended(store, ids) == builds)
    # Taken here: when the sender's Celery goes, it takes seconds to say goodbye to the broker.
    return time.monotonic() - began


def _ended(store: Store, ids: list[str]) -> int:
    with store.read() as uow:
        return uow.operations.count(id=tuple(ids), state="SUCCEEDED")


def _hosts(store: Store) -> int:
    with store.read() as uow:
        return uow.hosts.count()


def _declared(broker_url: str) -> str:
    with make_app(broker_url).connection_for_write() as connection:
        declare_topology(connection)
    return broker_url


def _wait(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not done():
        assert time.monotonic() < until, "the system does not come to rest"
        time.sleep(0.1)
