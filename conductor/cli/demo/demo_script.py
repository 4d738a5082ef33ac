"""The demo itself: start, define, build, crash, restart, add up."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rich.text import Text

from conductor.cli.demo.demo_audit import disagreements, read_books
from conductor.cli.demo.demo_fleet import fleet, fleet_json
from conductor.cli.demo.demo_moves import Moods, Travels
from conductor.cli.demo.demo_progress import OperationStatus, Refusals, look, refusals, retried
from conductor.cli.demo.demo_requests import INSTANCES, builds, definitions
from conductor.cli.demo.demo_system import Stage
from conductor.cli.demo.host_crash import Accident
from conductor.cli.rendering.render_layout import Guest
from conductor.cli.requests.wait_display import await_system
from conductor.cli.store_queries import guests_of
from conductor.processes.database_access import conductor_lives, drop_heartbeat
from conductor.processes.embedded import ComputeHost, Embedded
from conductor.processes.logs import set_up_logs
from conductor.settings import Settings
from conductor.store import Host, Store, UnitOfWork
from conductor.store.open_store import open_store
from models.errors import Broken, Conflict, Rejected, Unreachable
from models.messages.internal import CONDUCTOR
from models.tables.schema_upgrade import upgrade
from workers.hypervisor.fault_injection import FaultProfile, FaultRates, seeded
from workers.hypervisor.ports import GuestDomain
from workers.hypervisor.simulated import SimulatedHypervisor
from workers.journal.journal_file import FileJournal

FLEET_FILE: Final = "fleet.json"
LOG_FILE: Final = "demo.log"
_HABITS: Final = FaultProfile(
    verbs={"spawn": FaultRates(latency_s=0.02, latency_max_s=0.08, refused=0.03)}
)
_DRAWN: Final = ("alder-01", "birch-01", "cedar-01")
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

    status: OperationStatus
    refused: list[Refusals]
    retried: int
    wrong: list[str]
    drawn: list[Drawn]
    directory: Path = Path()
    seconds: float = 0.0
    crashed: str | None = None
    failed_move: str | None = None


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
    _clear(settings)
    with (directory / LOG_FILE).open("w", encoding="utf-8") as log:
        # The crash is meant: what its victims complain of is for a file, not for the show.
        set_up_logs("warning", log)
        try:
            return _run(settings, stage)
        finally:
            set_up_logs("error")


def _run(settings: Settings, stage: Stage) -> Outcome:
    directory = settings.state_dir
    (directory / FLEET_FILE).write_text(json.dumps(fleet_json()), encoding="utf-8")
    upgrade(settings.store_url)
    store = open_store(settings.store_url)
    moods = Moods()
    hosts = [_host(directory, name, (number, moods)) for number, name in enumerate(fleet())]
    system = Embedded(settings, hosts, store)
    system.start()
    await_system(store, len(hosts))
    wanted = list(definitions())
    for task, body in wanted:
        system.submit(task, body)
    _await(store, lambda uow: uow.catalogue.count() == len(wanted))
    stage.tell(Text(f"{len(hosts)} hosts are up; {INSTANCES} instances are asked for"))
    started = time.monotonic()
    for task, body in builds():
        system.submit(task, body)
    accident = Accident(system, INSTANCES)
    _watch(store, stage, accident)
    seconds = time.monotonic() - started
    with store.read() as uow:
        status = look(uow)
    travels = Travels(system, stage, moods)
    travels.happen()
    system.stop()
    domains = {host.name: host.hypervisor.domains() for host in hosts}
    drop_heartbeat(store, CONDUCTOR)
    outcome = replace(_outcome(store, domains), status=status, failed_move=travels.failed)
    store.close()
    return replace(outcome, directory=directory, seconds=seconds, crashed=accident.host)


def _clear(settings: Settings) -> None:
    """Make the demo's directory anew, unless somebody has a system running in it."""
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
        return False  # not even the tables of this version: nobody works with them


def _host(directory: Path, name: str, luck: tuple[int, Moods]) -> ComputeHost:
    """Return a host whose guests and journal `conductor up` finds again in the same folder."""
    home = directory / "compute" / name
    seed, moods = luck
    injected_faults = moods.over(seeded(_HABITS, seed))
    hypervisor = SimulatedHypervisor(fleet()[name], home / "hypervisor", injected_faults)
    return ComputeHost(name, hypervisor, FileJournal(home))


def _await(store: Store, done: Callable[[UnitOfWork], bool]) -> None:
    deadline = time.monotonic() + _LONGEST_S
    while time.monotonic() < deadline:
        with store.read() as uow:
            if done(uow):
                return
        time.sleep(_LOOK_EVERY_S / 4)
    raise Unreachable("demo_stuck", f"flavors and image are not there after {_LONGEST_S:.0f} s")


def _watch(store: Store, stage: Stage, accident: Accident) -> None:
    """Look until every instance has ended one way or the other; have the accident meanwhile."""
    deadline = time.monotonic() + _LONGEST_S
    while time.monotonic() < deadline:
        with store.read() as uow:
            status = look(uow)
            unfinished = uow.operations.count(ended_at=None)
        accident.happen(status, stage)
        stage.show(status, accident.down)
        if not unfinished and not accident.down and status.ended >= INSTANCES:
            return
        time.sleep(_LOOK_EVERY_S)
    message = f"the builds have not ended within {_LONGEST_S:.0f} s: {LOG_FILE} may say why"
    raise Unreachable("demo_stuck", message)


def _outcome(store: Store, domains: Mapping[str, Sequence[GuestDomain]]) -> Outcome:
    with store.read() as uow:
        hosts = {host.name: host for host in uow.hosts.where()}
        return Outcome(
            status=look(uow),
            refused=refusals(uow),
            retried=retried(uow),
            wrong=disagreements(read_books(uow, domains)),
            drawn=[Drawn(hosts[name], guests_of(uow, name)) for name in _DRAWN],
        )
