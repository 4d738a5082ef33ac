"""Decision and claim against PostgreSQL: how long, how flat, how many at once, how large.

Hosts of two NUMA cells, half full. Every scheduler is a process of its own, as in production;
what it answers was written before, so that only its own work is measured.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psycopg
import pytest

from conductor.store import Store
from conductor.store.open_store import open_store
from models.hardware import Flavor
from models.messages.internal import SelectHosts
from models.tables.schema_upgrade import upgrade
from tests.benchmarks.half_full import PINNED, asks, fill, flavor, overlaps
from tests.benchmarks.report import Figure, report

SMALL, LARGE = 1_000, 10_000
WARM, MEASURED = 50, 500
PLAIN = (flavor("plain-2", 2, 4_096), flavor("plain-4", 4, 8_192), flavor("plain-1", 1, 1_024))
PINS = (
    flavor("pinned-2", 2, 4_096, **PINNED),
    flavor("pinned-8", 8, 16_384, **PINNED),
    flavor("pinned-16", 16, 32_768, **PINNED, **{"hw:numa_nodes": "2"}),
)
IMPOSSIBLE = (
    flavor("cpus", 96, 4_096, **PINNED, **{"hw:numa_nodes": "1"}),
    flavor("pages", 2, 4_096, **PINNED, **{"hw:mem_page_size": "1GB"}),
    flavor("cell", 49, 4_096, **PINNED, **{"hw:numa_nodes": "1"}),
)


@dataclass(frozen=True)
class Run:
    """What the processes of one run measured together."""

    results: Sequence[dict[str, Any]]

    @property
    def took_ms(self) -> list[float]:
        return sorted(1000 * took for result in self.results for took in result["took_s"])

    @property
    def rate(self) -> float:
        began = min(result["started"] for result in self.results)
        ended = max(result["ended"] for result in self.results)
        return len(self.took_ms) / (ended - began)

    @property
    def p50_ms(self) -> float:
        return statistics.median(self.took_ms)

    @property
    def own_p50_ms(self) -> float:
        """The process's own work, which a busy machine lengthens less."""
        return statistics.median(
            1000 * worked for result in self.results for worked in result["worked_s"]
        )

    @property
    def p99_ms(self) -> float:
        return self.took_ms[len(self.took_ms) * 99 // 100]

    @property
    def conflicts(self) -> float:
        """How many in a hundred decisions met somebody who had moved first."""
        met = sum(count for result in self.results for count in result["conflicts"].values())
        return 100 * met / len(self.took_ms)

    def outcomes(self, name: str) -> int:
        return sum(result["outcomes"].get(name, 0) for result in self.results)


@pytest.fixture(scope="module")
def fleets(fresh_database: Callable[[], str]) -> dict[int, tuple[str, Store]]:
    """A database for each size of fleet."""
    made = {}
    for count in (SMALL, LARGE):
        url = fresh_database()
        upgrade(url)
        store = open_store(url)
        fill(store, count)
        _analyze(url)
        made[count] = url, store
    return made


@pytest.mark.parametrize("strategy", ["spread", "pack"])
@pytest.mark.timeout(900)
def test_decisions_a_second(fleets: dict[int, tuple[str, Store]], strategy: str) -> None:
    fsync_ms = _fsync_ms()
    runs = {
        (count, kind): _run(fleets[count], strategy, flavors)
        for count in (SMALL, LARGE)
        for kind, flavors in (("plain", PLAIN), ("pinned", PINS))
    }
    impossible = _run(fleets[LARGE], strategy, IMPOSSIBLE)
    assert impossible.outcomes("done") == 0
    assert all(run.outcomes("failed") == 0 for run in runs.values())
    plain, pinned = runs[LARGE, "plain"], runs[LARGE, "pinned"]
    figures = []
    for (count, kind), run in runs.items():
        goals = ("<= 5", "<= 25") if count == LARGE else ("", "")
        figures += [
            Figure(f"{count:,} hosts, {kind}: p50", run.p50_ms, "ms", goals[0]),
            Figure(f"{count:,} hosts, {kind}: p99", run.p99_ms, "ms", goals[1]),
            Figure(f"{count:,} hosts, {kind}: own CPU p50", run.own_p50_ms, "ms"),
            Figure(f"{count:,} hosts, {kind}: decisions", run.rate, "1/s"),
        ]
    both = [runs[LARGE, kind].p50_ms / runs[SMALL, kind].p50_ms for kind in ("plain", "pinned")]
    (one,) = plain.results
    figures += [
        Figure("plain: p50 of 10,000 / 1,000 hosts", both[0], "", "<= 2"),
        Figure("pinned: p50 of 10,000 / 1,000 hosts", both[1], "", "<= 2"),
        Figure("unschedulable: decisions", impossible.rate, "1/s"),
        Figure("unschedulable: p99", impossible.p99_ms, "ms"),
        Figure("unschedulable / schedulable rate", impossible.rate / pinned.rate, "", ">= 0.9"),
        Figure("pinned / plain rate", pinned.rate / plain.rate, "", ">= 0.5"),
        Figure("first answer of a new process", one["first_answer_s"], "s", "<= 5"),
        Figure(
            "peak memory",
            max(plain.results[0]["peak_mib"], pinned.results[0]["peak_mib"]),
            "MiB",
            "<= 400",
        ),
        Figure("fsync p50", fsync_ms, "ms"),
    ]
    report(f"scheduler_{strategy}", figures)


@pytest.mark.parametrize("strategy", ["spread", "pack"])
@pytest.mark.timeout(900)
def test_two_schedulers_on_one_fleet(fleets: dict[int, tuple[str, Store]], strategy: str) -> None:
    one = _run(fleets[LARGE], strategy, PLAIN + PINS)
    two = _run(fleets[LARGE], strategy, PLAIN + PINS, processes=2)
    assert list(overlaps(fleets[LARGE][1])) == []
    report(
        f"scheduler_two_{strategy}",
        [
            Figure("one process", one.rate, "1/s"),
            Figure("two processes", two.rate, "1/s"),
            Figure("two / one", two.rate / one.rate, "", ">= 1.4"),
            Figure("conflicts", two.conflicts, "%", "< 2" if strategy == "spread" else "< 10"),
            Figure("two processes: p99", two.p99_ms, "ms"),
        ],
    )


def _run(
    fleet: tuple[str, Store], strategy: str, flavors: Sequence[Flavor], processes: int = 1
) -> Run:
    url, store = fleet
    running = []
    for _ in range(processes):
        messages = asks(store, flavors, WARM + MEASURED)
        running.append(_process(url, strategy, messages))
    for process in running:
        assert _out(process).readline() == "ready\n"
    for process in running:
        _in(process).write("go\n")
        _in(process).flush()
    results = [json.loads(_out(process).readline()) for process in running]
    for process in running:
        assert process.wait(30) == 0
    return Run(results)


def _process(url: str, strategy: str, messages: Sequence[SelectHosts]) -> subprocess.Popen[str]:
    module = "tests.benchmarks.scheduler_process"
    process = subprocess.Popen(
        [sys.executable, "-m", module, url, strategy, "--warm", str(WARM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    for message in messages:
        _in(process).write(json.dumps(message.to_json()) + "\n")
    _in(process).write("\n")
    _in(process).flush()
    return process


def _in(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdin is not None
    return process.stdin


def _out(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


def _analyze(url: str) -> None:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def _fsync_ms() -> float:
    """Return the median of writing one page and having it on disk."""
    took = []
    with tempfile.NamedTemporaryFile(dir=Path.cwd()) as file:
        for _ in range(100):
            file.write(b"x" * 8192)
            file.flush()
            before = time.perf_counter()
            os.fsync(file.fileno())
            took.append(1000 * (time.perf_counter() - before))
    return statistics.median(took)
