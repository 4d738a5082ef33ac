"""The demo itself: start, define, build, crash, restart, add up."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.text import Text

from conductor.cli.demo.audit import disagreements, read_books
from conductor.cli.demo.fleet import fleet, fleet_json
from conductor.cli.demo.orders import INSTANCES, builds, definitions
from conductor.cli.demo.sight import Refusals, Sight, look, refusals, retried
from conductor.cli.demo.stage import Stage
from conductor.cli.embedded import ComputeHost, Embedded
from conductor.cli.reading import guests_of
from conductor.cli.render_layout import Guest
from conductor.operations.waits import ON_HOST
from conductor.settings import Settings
from conductor.store.open import open_store
from conductor.store.ports import Store, UnitOfWork
from conductor.store.records import Host
from models.errors import Unreachable
from models.tables.upgrade import upgrade
from workers.hypervisor.fates import Habit, Habits, seeded
from workers.hypervisor.port import GuestDomain
from workers.hypervisor.simulated import SimulatedHypervisor
from workers.journal.file import FileJournal

FLEET_FILE: Final = "fleet.json"
_HABITS: Final = Habits(verbs={"spawn": Habit(latency_s=0.02, latency_max_s=0.08, refused=0.03)})
_DRAWN: Final = ("alder-01", "birch-01", "cedar-01")
_CRASH_AT: Final = 0.4
_DOWN_S: Final = 1.5
_LONGEST_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Drawn:
    """A host to draw at the end."""

    host: Host
    guests: list[Guest]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of the demo."""

    directory: Path
    seconds: float
    sight: Sight
    refused: list[Refusals]
    retried: int
    wrong: list[str]
    drawn: list[Drawn]


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


def run_demo(settings: Settings, stage: Stage) -> Outcome:
    """Run the main job once, from nothing, and return what came of it."""
    directory = settings.state_dir
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / FLEET_FILE).write_text(json.dumps(fleet_json()), encoding="utf-8")
    upgrade(settings.store_url)
    store = open_store(settings.store_url)
    hosts = [_host(directory, name, number) for number, name in enumerate(fleet())]
    system = Embedded(settings, hosts, store)
    system.start()
    _await(store, lambda uow: len(uow.hosts.versions()) == len(hosts))
    for task, body in definitions():
        system.submit(task, body)
    _await(store, lambda uow: not uow.operations.count(ended_at=None))
    stage.tell(Text(f"{len(hosts)} hosts are up; {INSTANCES} instances are asked for"))
    started = time.monotonic()
    for task, body in builds():
        system.submit(task, body)
    _watch(system, store, stage)
    seconds = time.monotonic() - started
    system.stop()
    domains = {host.name: host.hypervisor.domains() for host in hosts}
    return _outcome(store, directory, seconds, domains)


def _host(directory: Path, name: str, seed: int) -> ComputeHost:
    """Return a host whose guests and journal `conductor up` finds again in the same folder."""
    home = directory / "compute" / name
    hypervisor = SimulatedHypervisor(fleet()[name], home / "hypervisor", seeded(_HABITS, seed))
    return ComputeHost(name, hypervisor, FileJournal(home))


def _await(store: Store, done: Callable[[UnitOfWork], bool]) -> None:
    deadline = time.monotonic() + _LONGEST_S
    while time.monotonic() < deadline:
        with store.read() as uow:
            if done(uow):
                return
        time.sleep(_LOOK_EVERY_S / 4)
    raise Unreachable("demo_stuck", f"the demo has not gone on for {_LONGEST_S:.0f} s")


def _watch(system: Embedded, store: Store, stage: Stage) -> None:
    """Look until every instance has ended one way or the other; crash a host in the middle."""
    crash = _crash_once(system, store, stage)
    deadline = time.monotonic() + _LONGEST_S
    while time.monotonic() < deadline:
        with store.read() as uow:
            sight = look(uow)
            unfinished = uow.operations.count(ended_at=None)
        stage.show(sight, crash(sight))
        if not unfinished and sight.ended >= INSTANCES:
            return
        time.sleep(_LOOK_EVERY_S)
    raise Unreachable("demo_stuck", f"the builds have not ended within {_LONGEST_S:.0f} s")


def _crash_once(system: Embedded, store: Store, stage: Stage) -> Callable[[Sight], frozenset[str]]:
    """Return what, called with every look, crashes the busiest host once and restarts it."""
    host = ""
    back_at = math.inf

    def step(sight: Sight) -> frozenset[str]:
        nonlocal host, back_at
        if not host and sight.ended >= INSTANCES * _CRASH_AT and any(sight.waiting.values()):
            host = max(sight.waiting, key=lambda name: sight.waiting[name])
            lost = system.crash(host)
            back_at = time.monotonic() + _DOWN_S
            stage.tell(_crashed(host, sight.waiting[host], lost))
        elif time.monotonic() >= back_at:
            back_at = math.inf
            with store.read() as uow:
                owed = uow.operations.count(waiting_on=ON_HOST + host, ended_at=None)
            system.restart(host)
            stage.tell(_restarted(host, owed))
        return frozenset({host} if back_at < math.inf else ())

    return step


def _crashed(host: str, spawning: int, lost: int) -> Text:
    return Text.assemble(
        ("✗ ", "bold red"),
        f"{host}: compute worker crashed with {spawning} builds in hand: its memory is gone, "
        f"and {lost} unacknowledged messages with it",
    )


def _restarted(host: str, owed: int) -> Text:
    return Text.assemble(
        ("● ", "bold green"),
        f"{host}: restarted, read its journal, said hello; {owed} instructions are sent again",
    )


def _outcome(
    store: Store,
    directory: Path,
    seconds: float,
    domains: Mapping[str, Sequence[GuestDomain]],
) -> Outcome:
    with store.read() as uow:
        hosts = {host.name: host for host in uow.hosts.where()}
        outcome = Outcome(
            directory=directory,
            seconds=seconds,
            sight=look(uow),
            refused=refusals(uow),
            retried=retried(uow),
            wrong=disagreements(read_books(uow, domains)),
            drawn=[Drawn(hosts[name], guests_of(uow, name)) for name in _DRAWN],
        )
    store.close()
    return outcome
