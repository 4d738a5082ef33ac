"""Mixed operations a second, in one process and over services; messages and bytes of each kind.

Every instance is built, stopped, started, moved, resized, moved while it runs, rebuilt, shelved,
brought back and deleted, all of them at once, while those of a lost host are evacuated.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conductor.hosts import host_administration
from conductor.processes.embedded.compute_hosts import ComputeHost
from conductor.processes.embedded.embedded_system import Embedded
from conductor.settings import Settings
from conductor.store import Store
from conductor.store.open_store import open_store
from models.messages.hardware.hardware_json import host_from_json
from models.tables.schema_upgrade import upgrade
from tasks.app import make_app
from tasks.routing import declare_topology
from tasks.sending.celery_carrier import CeleryCarrier
from tests.benchmarks.lives import EVACUATED, WHOLE_LIFE, Lives, build
from tests.benchmarks.processes import running
from tests.benchmarks.report import Figure, report
from tests.benchmarks.wire import EVENT, NOTICE, Ears, Tap, Traffic, octets
from tests.environment import variables
from tests.operations.world import small_host
from workers.hypervisor.ports import Hardware
from workers.hypervisor.simulated import SimulatedHypervisor
from workers.journal.journal_file import FileJournal

HOSTS = 6
LOST = "host-0"
"""Declared dead before anything is measured; its instances are evacuated."""

EMBEDDED_LIVES, SERVICES_LIVES, COUNTED_LIVES = 48, 24, 4
LISTENER = "listener"
QUIET_S = 1.0


def test_mixed_operations_a_second_embedded(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'conductor.db'}"
    upgrade(url)
    store = open_store(url)
    hardware = Hardware(host_from_json(small_host(cells=2, cpus=32, memory_mib=65_536)))
    computes = [
        ComputeHost(name, SimulatedHypervisor(hardware), FileJournal(tmp_path / name))
        for name in (f"host-{number}" for number in range(HOSTS))
    ]
    system = Embedded(Settings(state_dir=tmp_path), computes, store)
    system.bus.listen(LISTENER)
    system.start()
    _await_hosts(store)
    lives = Lives(lambda outgoing: system.bus.send([outgoing]), partial(_hear_embedded, system))
    lost = _instances_of_a_lost_host(lives, store, EMBEDDED_LIVES // 4)
    sent, spent = system.bus.sent, time.process_time()
    operations, wall = _mix(lives, EMBEDDED_LIVES, lost)
    sent, spent = system.bus.sent - sent, time.process_time() - spent
    system.stop()
    report(
        "operations_embedded",
        [
            Figure("mixed operations", operations / wall, "1/s"),
            Figure("CPU time an operation", spent / operations * 1e3, "ms"),
            Figure("messages and notifications an operation", sent / operations, ""),
        ],
    )


@pytest.mark.timeout(300)
def test_mixed_operations_a_second_over_services(
    fresh_vhost: Callable[[], str],
    fresh_database: Callable[[], str],
    redis_url: str,
    service_variables: dict[str, str],
    tmp_path: Path,
) -> None:
    # Of its own: hosts of other benchmarks would be waited for.
    broker_url, database_url = fresh_vhost(), fresh_database()
    upgrade(database_url)
    store = open_store(database_url)
    environ = {
        "CONDUCTOR_BROKER_URL": broker_url,
        "CONDUCTOR_DATABASE_URL": database_url,
        "CONDUCTOR_RESULT_URL": redis_url,
        "CONDUCTOR_STATE_DIR": str(tmp_path),
    }
    app = make_app(broker_url)
    carrier = CeleryCarrier(app)
    counted_octets = partial(octets, broker_url, service_variables[variables.BROKER_CONTROL])
    with app.connection_for_write() as connection, running(environ, tmp_path, HOSTS):
        declare_topology(connection)
        lives = Lives(lambda outgoing: carrier.send([outgoing]), Ears(connection).hear)
        _await_hosts(store)
        lost = _instances_of_a_lost_host(lives, store, (COUNTED_LIVES + SERVICES_LIVES) // 4)
        tap = Tap(connection)
        _mix(lives, COUNTED_LIVES, lost[: COUNTED_LIVES // 4])
        time.sleep(QUIET_S)  # what follows the last end is part of it too
        counted = _by_kind(tap.traffic(lives.asked), dict(lives.asked))
        before = counted_octets()
        operations, wall = _mix(lives, SERVICES_LIVES, lost[COUNTED_LIVES // 4 :])
        received, sent = (a - b for a, b in zip(counted_octets(), before, strict=True))
    carrier.close()
    report(
        "operations_services",
        [
            Figure("mixed operations", operations / wall, "1/s"),
            Figure("octets to the broker an operation, all told", received / operations, "B"),
            Figure("octets from the broker an operation, all told", sent / operations, "B"),
            *counted,
        ],
    )


def _instances_of_a_lost_host(lives: Lives, store: Store, count: int) -> list[str]:
    """Build instances on a host that is then declared dead; return their ids."""
    ids = lives.lead(count, [build(host=LOST)])
    lives.end()
    lives.asked.clear()
    with store.begin() as uow:
        host_administration.force_down(uow, LOST, "fenced")
    return ids


def _mix(lives: Lives, count: int, lost: Sequence[str]) -> tuple[int, float]:
    """Lead whole lives while a lost host is evacuated; return operations and seconds."""
    before, began = len(lives.asked), time.monotonic()
    lives.lead(count, WHOLE_LIFE)
    lives.go_on(lost, EVACUATED)
    lives.end()
    return len(lives.asked) - before, time.monotonic() - began


def _by_kind(traffic: Traffic, asked: Mapping[str, str]) -> list[Figure]:
    """Return messages and bytes of an operation of each kind, then of what all have alike."""
    times = Counter(label for label in asked.values())
    figures = []
    for label, number in times.items():
        figures += [
            Figure(f"{label}: messages", traffic.messages[label] / number, ""),
            Figure(f"{label}: bytes of their bodies", traffic.body_bytes[label] / number, "B"),
        ]
    operations = sum(times.values())
    for label, what in ((NOTICE, "notices"), (EVENT, "messages for Flower")):
        figures += [
            Figure(f"{what} an operation", traffic.messages[label] / operations, ""),
            Figure(f"{what}: bytes of their bodies", traffic.body_bytes[label] / operations, "B"),
        ]
    return figures


def _hear_embedded(system: Embedded) -> Mapping[str, Any] | None:
    outgoing = system.bus.take(LISTENER, 0.5)
    return None if outgoing is None else outgoing.body


def _await_hosts(store: Store) -> None:
    until = time.monotonic() + 60
    while True:
        with store.read() as uow:
            if uow.hosts.count() == HOSTS:
                return
        assert time.monotonic() < until, "hosts are missing"
        time.sleep(0.05)
