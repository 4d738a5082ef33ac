"""Builds a second to ACTIVE in one process: SQLite, the in-process bus, 20 simulated hosts."""

from __future__ import annotations

import time
from pathlib import Path

from conductor.processes.embedded.compute_hosts import ComputeHost
from conductor.processes.embedded.embedded_system import Embedded
from conductor.settings import Settings
from conductor.store import Store
from conductor.store.open_store import open_store
from models.messages.hardware.hardware_json import host_from_json
from models.tables.schema_upgrade import upgrade
from tests.benchmarks.report import Figure, report
from tests.operations.world import CONTEXT, small_host
from workers.hypervisor.ports import Hardware
from workers.hypervisor.simulated import SimulatedHypervisor
from workers.journal.journal_file import FileJournal

HOSTS = 20
BUILDS = 600
FLAVOR = {"vcpus": 1, "memory_mb": 512}


def test_builds_a_second_embedded(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'conductor.db'}"
    upgrade(url)
    store = open_store(url)
    hardware = Hardware(host_from_json(small_host(cells=2, cpus=16, memory_mib=65_536)))
    hosts = [
        ComputeHost(name, SimulatedHypervisor(hardware), FileJournal(tmp_path / name))
        for name in (f"host-{number}" for number in range(HOSTS))
    ]
    system = Embedded(Settings(state_dir=tmp_path), hosts, store)
    system.start()
    _wait(lambda: _count_hosts(store) == HOSTS)
    _run(system, store, 50)
    spent, wall = time.process_time(), time.monotonic()
    _run(system, store, BUILDS)
    wall, spent = time.monotonic() - wall, time.process_time() - spent
    system.stop()
    with store.read() as uow:
        active = uow.instances.count(state="active")
    assert active == BUILDS + 50
    report(
        "embedded",
        [
            Figure("builds to ACTIVE", BUILDS / wall, "1/s", ">= 50"),
            Figure("CPU time a build", spent / BUILDS * 1e3, "ms"),
            Figure("messages a build", system.bus.sent / (BUILDS + 50), ""),
        ],
    )


def _run(system: Embedded, store: Store, builds: int) -> None:
    for number in range(builds):
        body = {"name": f"vm-{number}", "flavor": FLAVOR, "image": {"id": "img"}}
        system.submit("conductor.build_instances", {"context": CONTEXT, "instance": body})
    _wait(lambda: system.bus.depths().get("conductor") == 0)
    _wait(lambda: _living(store) == 0)


def _living(store: Store) -> int:
    with store.read() as uow:
        return uow.operations.count(ended_at=None)


def _count_hosts(store: Store) -> int:
    with store.read() as uow:
        return uow.hosts.count()


def _wait(done: object) -> None:
    assert callable(done)
    until = time.monotonic() + 120
    while not done():
        assert time.monotonic() < until, "the system does not come to rest"
        time.sleep(0.05)
