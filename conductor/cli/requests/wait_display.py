"""Wait for an operation to end, with a progress display on a terminal."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from conductor.cli.rendering.output import side_console
from conductor.exit_codes import NO, WRONG, say
from conductor.processes.database_access import conductor_lives, heard_of
from conductor.store import OperationRecord, Store, UnitOfWork
from models.errors import Unreachable
from models.lifecycle import OperationState
from models.units import seconds_text

DEFAULT_TIMEOUT_S: Final = 600.0
_POLL_S: Final = 0.1
_COPIES: Final = "live_migrate_instance"
_STARTS_WITHIN_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An operation as seen at one moment; `children` counts their states.

    `copied` is how many percent of a guest that moves while it runs have been copied.
    """

    record: OperationRecord | None
    children: Counter[str]
    copied: int | None = None

    @property
    def ended(self) -> bool:
        """Whether there is nothing more to wait for."""
        return self.record is not None and self.record.state.ended


class Watcher(Protocol):
    """Is shown every snapshot."""

    def show(self, snapshot: Snapshot) -> None:
        """Show it."""


def await_end(store: Store, operation_id: str, timeout_s: float) -> OperationRecord:
    """Return the operation when it has ended; raise `Unreachable` (`timed_out`) otherwise."""
    deadline = time.monotonic() + timeout_s
    with _watching(operation_id) as watcher:
        while True:
            with store.read() as uow:
                snapshot = snapshot_of(uow, operation_id)
            watcher.show(snapshot)
            if snapshot.ended and snapshot.record is not None:
                return snapshot.record
            if time.monotonic() >= deadline:
                raise Unreachable("timed_out", _late(operation_id, snapshot, timeout_s))
            time.sleep(min(_POLL_S, max(0.0, deadline - time.monotonic())))


def await_system(store: Store, hosts: int) -> None:
    """Return when a conductor lives and has registered so many hosts; `Unreachable` after 30 s."""
    deadline = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < deadline:
        with store.read() as uow:
            if conductor_lives(uow) and heard_of(uow, "compute") >= hosts:
                return
        time.sleep(_POLL_S / 4)
    within = seconds_text(_STARTS_WITHIN_S)
    raise Unreachable("not_started", f"the system has not come up within {within}")


def snapshot_of(uow: UnitOfWork, operation_id: str) -> Snapshot:
    """Return an operation as it is now."""
    record = uow.operations.get(operation_id)
    if record is None:
        return Snapshot(None, Counter())
    children = uow.operations.where(parent_id=operation_id)
    copied = None
    if record.kind == _COPIES and not record.state.ended:
        moves = uow.migrations.where(operation_id=operation_id)
        copied = max((move.progress_percent for move in moves), default=None)
    return Snapshot(record, Counter(child.state.value for child in children), copied)


def verdict(record: OperationRecord) -> tuple[str, int]:
    """Return one line on how an operation ended, and the exit code that it means.

    A request that was refused before it began was wrong; one that began and failed has failed.
    """
    if record.state is OperationState.SUCCEEDED:
        return f"{record.kind} {record.id} succeeded", 0
    error = record.error or {}
    refused = record.definition_version == 0 and error.get("kind") == "Rejected"
    if refused:
        return f"error: {error.get('message')}", WRONG
    word = record.state.value.lower()
    return f"error: {record.kind} {record.id} {word}: {error.get('message')}", NO


@contextmanager
def _watching(operation_id: str) -> Iterator[Watcher]:
    if not sys.stderr.isatty():
        yield _Lines()
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[counts]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=side_console(), transient=True) as progress:
        yield _Bar(progress, operation_id)


class _Lines:
    """Prints the progress of a copy in lines, into a pipe or a log."""

    def __init__(self) -> None:
        self._shown = 0

    def show(self, snapshot: Snapshot) -> None:
        """Print a line for every tenth."""
        tenth = (snapshot.copied or 0) // 10 * 10
        if tenth > self._shown:
            self._shown = tenth
            say(f"copied {snapshot.copied} %")


class _Bar:
    def __init__(self, progress: Progress, operation_id: str) -> None:
        self._progress = progress
        self._task = progress.add_task(operation_id[:8], total=None, counts="sent")

    def show(self, snapshot: Snapshot) -> None:
        """Move the bar by the children that have ended."""
        record, total = snapshot.record, snapshot.children.total()
        if record is None:
            return
        if snapshot.copied is not None:
            self._progress.update(
                self._task,
                description=record.kind.replace("_", " "),
                total=100,
                completed=snapshot.copied,
                counts=f"{snapshot.copied} % copied, {record.step or record.state.value.lower()}",
            )
            return
        ended = sum(snapshot.children[state] for state in OperationState if state.ended)
        counts = ", ".join(f"{n} {name.lower()}" for name, n in sorted(snapshot.children.items()))
        self._progress.update(
            self._task,
            description=record.kind.replace("_", " "),
            total=total or None,
            completed=ended,
            counts=counts or record.state.value.lower(),
        )


def _late(operation_id: str, snapshot: Snapshot, timeout_s: float) -> str:
    state = snapshot.record.state.value if snapshot.record else "not accepted yet"
    return f"operation {operation_id} has not ended within {seconds_text(timeout_s)}: it is {state}"
