"""Processes whose clocks differ agree on what time it is: the database's."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from conductor import clock_agreement
from conductor.store import Heartbeat
from conductor.store.memory.memory_store import MemoryStore
from conductor.store.sql.sql_store import SqlStore
from conductor.upkeep import PeriodicWork, troubles
from models.tables.schema_upgrade import upgrade

HOUR_S = 3_600.0
AN_HOUR_AHEAD = """
import sys, time
real = time.time
time.time = lambda: real() + 3600.0
from conductor import clock_agreement
from conductor.store.open_store import open_store
store = open_store(sys.argv[1])
with store.begin() as writing:
    writes = writing.now
with store.read() as reading:
    reads = reading.now
print(writes, reads, clock_agreement.off_by(store))
store.close()
"""


def test_a_process_an_hour_ahead_has_the_time_of_the_database(
    fresh_database: Callable[[], str],
) -> None:
    url = fresh_database()
    upgrade(url)
    command = [sys.executable, "-c", AN_HOUR_AHEAD, url]
    before = time.time()
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    after = time.time()
    writes, reads, off = map(float, printed.split())
    slack = clock_agreement.TOLERATED_S
    assert before - slack <= writes <= reads <= after + slack
    assert off == pytest.approx(HOUR_S, abs=after - before + slack)


def test_time_goes_on_within_one_connection(fresh_database: Callable[[], str]) -> None:
    url = fresh_database()
    upgrade(url)
    store = SqlStore(url)
    times = []
    for _ in range(8):
        with store.begin() as uow:
            uow.heartbeats.put(Heartbeat("a", "conductor", uow.now))
            times.append(uow.now)
        with store.read() as uow:
            times.append(uow.now)
    assert times == sorted(times)
    assert len(set(times)) == len(times)
    store.close()


def test_a_clock_given_to_a_store_is_the_one_that_counts(
    fresh_database: Callable[[], str],
) -> None:
    url = fresh_database()
    upgrade(url)
    store = SqlStore(url, lambda: 5.0)
    with store.begin() as uow:
        assert uow.now == 5.0
    store.close()


@pytest.mark.parametrize(("own", "words"), [(4_600.0, "ahead of"), (0.0, "behind")])
def test_a_clock_that_is_off_is_shown_until_it_is_right(own: float, words: str) -> None:
    store = MemoryStore(lambda: 1_000.0)
    with store.begin() as uow:
        uow.heartbeats.put(Heartbeat("conductor@a", "conductor", uow.now))
    rounds = PeriodicWork(store, "conductor@a")
    clock_agreement.watch(store, rounds, lambda: own)
    with store.read() as uow:
        ((name, why),) = troubles(uow)
    assert name == "conductor@a/clock"
    assert words in why
    clock_agreement.watch(store, rounds, lambda: 1_002.0)
    with store.read() as uow:
        assert troubles(uow) == []


def test_requests_expire_by_the_time_of_the_database() -> None:
    store = MemoryStore(lambda: 1_000.0)
    clock = clock_agreement.OwnClock(lambda: 4_600.0)
    assert clock.utc().timestamp() == 4_600.0
    work = PeriodicWork(store, "conductor@a")
    clock_agreement.watch(store, work, lambda: 4_600.0, clock)
    assert clock.utc().timestamp() == 1_000.0
