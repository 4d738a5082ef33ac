"""What a process does by the clock beside its messages: one thread a job, until the block ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import structlog

from models.errors import Broken, Conflict, Unreachable
from models.throttled_log import ThrottledLog

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """Work that is due `every_s` seconds; `vital` ends the process when an invariant fails."""

    name: str
    work: Callable[[], Any]
    every_s: float
    vital: bool = False


@contextmanager
def periodic_jobs(*jobs: Job) -> Iterator[None]:
    """Do each job at once and then by its clock; what fails is logged and tried again."""
    stopping = threading.Event()
    threads = [
        threading.Thread(target=_repeat, args=(job, stopping), name=job.name, daemon=True)
        for job in jobs
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join(timeout=5.0)


def _repeat(job: Job, stopping: threading.Event) -> None:
    warnings = ThrottledLog()
    while True:
        _do(job, warnings)
        if stopping.wait(job.every_s):
            return


def _do(job: Job, warnings: ThrottledLog) -> None:
    try:
        job.work()
    except (Conflict, Unreachable) as error:
        kind = f"{job.name} will be tried again"
        warnings.warn(kind, code=error.code, reason=error.message)
    except Broken as error:
        log.critical("an invariant failed", job=job.name, code=error.code, reason=error.message)
        if job.vital:
            os.kill(os.getpid(), signal.SIGTERM)
    except Exception as error:  # noqa: BLE001 - one bad round must not end the rounds
        warnings.warn(f"{job.name} failed", exc_info=error)
