"""The course of the demo: start, define, build, crash, restart, move, audit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from rich.text import Text

from conductor.cli.demo.demo_moves import MovesOfDemo
from conductor.cli.demo.demo_outcome import Outcome, outcome_of
from conductor.cli.demo.demo_progress import look
from conductor.cli.demo.demo_requests import INSTANCES, builds, definitions
from conductor.cli.demo.demo_stage import Stage
from conductor.cli.demo.demo_system import DemoSystem, clear_directory
from conductor.cli.demo.host_crash import HostCrash
from conductor.processes.logs import set_up_logs
from conductor.settings import Settings
from conductor.store import Store, UnitOfWork
from models.errors import Unreachable

LOG_FILE: Final = "demo.log"
_LONGEST_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.1


def run_demo(settings: Settings, stage: Stage) -> Outcome:
    """Run the demo once in an empty directory and return its outcome."""
    directory = settings.state_dir
    clear_directory(settings)
    with (directory / LOG_FILE).open("w", encoding="utf-8") as log:
        # The crash is intended: its errors go to a file, not to the terminal.
        set_up_logs("warning", log)
        try:
            return _run(settings, stage)
        finally:
            set_up_logs("error")


def _run(settings: Settings, stage: Stage) -> Outcome:
    system = DemoSystem(settings)
    store = system.store
    entries = list(definitions())
    for task, body in entries:
        system.embedded.submit(task, body)
    _await(store, lambda uow: uow.catalogue.count() == len(entries))
    text = f"{len(system.hosts)} hosts are up; {INSTANCES} instances are requested"
    stage.print_line(Text(text))
    started = time.monotonic()
    for task, body in builds():
        system.embedded.submit(task, body)
    crash = HostCrash(system.embedded, INSTANCES)
    _watch(store, stage, crash)
    seconds = time.monotonic() - started
    with store.read() as uow:
        status = look(uow)
    moves = MovesOfDemo(system.embedded, stage, system.refusals)
    moves.run()
    outcome = replace(
        outcome_of(store, system.stop()),
        status=status,
        failed_move=moves.failed,
        directory=settings.state_dir,
        seconds=seconds,
        crashed=crash.host,
    )
    store.close()
    return outcome


def _await(store: Store, done: Callable[[UnitOfWork], bool]) -> None:
    deadline = time.monotonic() + _LONGEST_S
    while time.monotonic() < deadline:
        with store.read() as uow:
            if done(uow):
                return
        time.sleep(_LOOK_EVERY_S / 4)
    raise Unreachable("demo_stuck", f"flavors and image are not there after {_LONGEST_S:.0f} s")


def _watch(store: Store, stage: Stage, crash: HostCrash) -> None:
    """Show the progress until every instance is active or failed; crash a host meanwhile."""
    deadline = time.monotonic() + _LONGEST_S
    while time.monotonic() < deadline:
        with store.read() as uow:
            status = look(uow)
            unfinished = uow.operations.count(ended_at=None)
        crash.step(status, stage)
        stage.show(status, crash.down)
        if not unfinished and not crash.down and status.ended >= INSTANCES:
            return
        time.sleep(_LOOK_EVERY_S)
    message = f"the builds have not ended within {_LONGEST_S:.0f} s: {LOG_FILE} may say why"
    raise Unreachable("demo_stuck", message)
