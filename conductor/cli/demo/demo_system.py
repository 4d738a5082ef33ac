"""The embedded system of the demo, in a directory of its own that is emptied first."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from conductor.cli.demo.demo_fleet import fleet, fleet_json
from conductor.cli.demo.demo_moves import SpawnRefusals
from conductor.cli.requests.wait_display import await_system
from conductor.cli.simulated_fleet import kept_host
from conductor.processes.database_access import conductor_lives, drop_heartbeat
from conductor.processes.embedded.compute_hosts import ComputeHost
from conductor.processes.embedded.embedded_system import Embedded
from conductor.settings import Settings
from conductor.store.open_store import open_store
from models.errors import Broken, Conflict, Rejected, Unreachable
from models.messages.internal import CONDUCTOR
from models.tables.schema_upgrade import upgrade
from workers.hypervisor.fault_injection import FaultProfile, FaultRates, seeded
from workers.hypervisor.ports import GuestDomain

FLEET_FILE: Final = "fleet.json"
_FAULTS: Final = FaultProfile(
    verbs={"spawn": FaultRates(latency_s=0.02, latency_max_s=0.08, refused=0.03)}
)


def demo_settings(settings: Settings) -> Settings:
    """Return settings of an embedded system in a directory of its own."""
    changes = {
        "state_dir": settings.state_dir / ".demo",
        "database_url": "",
        "broker_url": "",
        "result_url": "",
        "heartbeat_s": 1.0,
    }
    return settings.model_copy(update=changes)


class DemoSystem:
    """The running system with its hosts; `refusals` makes hosts refuse instances."""

    def __init__(self, settings: Settings) -> None:
        directory = settings.state_dir
        (directory / FLEET_FILE).write_text(json.dumps(fleet_json()), encoding="utf-8")
        upgrade(settings.store_url)
        self.store = open_store(settings.store_url)
        self.refusals = SpawnRefusals()
        self.hosts = [
            _host(directory, name, seed, self.refusals) for seed, name in enumerate(fleet())
        ]
        self.embedded = Embedded(settings, self.hosts, self.store)
        self.embedded.start()
        await_system(self.store, len(self.hosts))

    def stop(self) -> Mapping[str, Sequence[GuestDomain]]:
        """Stop the system and return the guests of each host; the store stays open."""
        self.embedded.stop()
        domains = {host.name: host.hypervisor.domains() for host in self.hosts}
        drop_heartbeat(self.store, CONDUCTOR)
        return domains


def clear_directory(settings: Settings) -> None:
    """Empty the demo's directory; raise `Rejected` while a system runs in it."""
    directory = settings.state_dir
    if _is_running(settings):
        message = f"a system is running in {directory}: stop it before the next demo"
        raise Rejected("demo_in_use", message, key="CONDUCTOR_STATE_DIR")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)


def _is_running(settings: Settings) -> bool:
    if not settings.state_dir.exists():
        return False
    store = open_store(settings.store_url)
    try:
        with closing(store), store.read() as uow:
            return conductor_lives(uow)
    except (Broken, Conflict, Unreachable):
        return False  # not even the tables of this version: no running system


def _host(directory: Path, name: str, seed: int, refusals: SpawnRefusals) -> ComputeHost:
    return kept_host(directory, name, fleet()[name], refusals.added_to(seeded(_FAULTS, seed)))
