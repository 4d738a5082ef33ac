"""Prometheus scrapes processes, and an operator prints the same once."""

from __future__ import annotations

import subprocess
import sys
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.fleet import Fleet
from tests.acceptance.members import Member
from tests.environment.private import free_port
from tests.environment.variables import CHECKOUT
from tests.limits import limit_s

Samples = dict[tuple[str, ...], float]


def samples_of(text: str) -> Samples:
    """Return the value of each series, by its name and the values of its labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(port: int) -> Samples:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=limit_s(10)) as answer:
        return samples_of(answer.read().decode())


def watched(fleet: Fleet, role: str, port: int) -> Member:
    """Start one more process of a role, which answers scrapes."""
    environment = {**fleet.environment, "CONDUCTOR_METRICS_PORT": str(port)}
    member = Member(f"{role}-watched", (role,), environment, fleet.directory / f"{role}-watched")
    member.start()
    return member


def test_processes_answer_scrapes_while_they_work(fleet: Fleet) -> None:
    ports = {"conductor": free_port(9180), "scheduler": free_port(9280)}
    members = [watched(fleet, role, port) for role, port in ports.items()]
    try:
        for member in members:
            member.wait_ready()
        fleet.all_ended([fleet.sender.build() for _ in range(12)])
        standing, deciding = (scraped(port) for port in ports.values())
        assert standing["conductor_up", "database"] == standing["conductor_up", "broker"] == 1
        assert standing["conductor_queue_consumers", "conductor"] == 3
        assert ("conductor_queue_messages", "dead_letters") in standing
        assert standing["conductor_outbox_oldest_seconds",] < 30
        built = standing.get(("conductor_operation_seconds_count", "build_instances", "SUCCEEDED"))
        assert built is None or 0 < built <= 12
        assert deciding["conductor_scheduling_seconds_count",] >= 0
    finally:
        for member in members:
            member.kill()


def test_an_operator_prints_how_the_system_stands_once(fleet: Fleet) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "conductor", "metrics"],
        env=fleet.environment,
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s(60),
    )
    assert done.returncode == 0, done.stderr
    told = samples_of(done.stdout)
    assert told["conductor_queue_consumers", "scheduler"] == 2
    assert told["conductor_up", "database"] == 1
