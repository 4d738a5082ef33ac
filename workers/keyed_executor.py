"""A keyed executor: one job at a time for each key, a bounded number of keys at once."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from threading import Condition, Thread
from typing import Any, Final, Generic, TypeVar

import structlog

Job = TypeVar("Job")

URGENT_WIDTH: Final = 4
"""How many keys more than the width may be at work when their jobs are urgent."""
MOST_THREADS: Final = 64
"""However many jobs hang, no more than so many run at once."""
BEGIN_WITHIN_S: Final = 30.0
"""How long a job may wait for a thread of an executor that others may have delayed."""


def _never(_: Any) -> bool:
    return False


def _no_limit(_: Any) -> float:
    return math.inf


def in_a_thread(work: Callable[[], None]) -> None:
    """Do the work in a thread of its own, which keeps no process from ending."""
    Thread(target=work, name="spare", daemon=True).start()


@dataclass(frozen=True, slots=True)
class Policy(Generic[Job]):
    """Which jobs are urgent, and after how many seconds without a sign of life one hangs."""

    urgent: Callable[[Job], bool] = _never
    hang_after_s: Callable[[Job], float] = _no_limit
    clock: Callable[[], float] = time.monotonic
    spare: Callable[[Callable[[], None]], object] = in_a_thread
    """Does work for which no thread of the executor is to be counted on."""


@dataclass(frozen=True, slots=True)
class Running(Generic[Job]):
    """A job at work: its key, for how long without a sign of life, and whether it hangs."""

    key: str
    job: Job
    for_s: float
    hangs: bool


@dataclass(eq=False, slots=True)
class _Execution(Generic[Job]):
    job: Job
    since: float
    begun: bool = False


class KeyedExecutor(Generic[Job]):
    """Runs `do(job)` for every job, those of one key in order and one at a time.

    At most `width` keys are worked on at once, by threads of `executor`. One that hangs is not
    counted: others go on without it, in threads of their own, up to `MOST_THREADS`. What is
    urgent comes first, and begins though `width` keys are at work. Without an executor the
    thread that calls `put` does the work before `put` returns, except for a job put in by a job
    of the same key, which runs when that one has ended.
    """

    def __init__(
        self,
        executor: Executor | None,
        width: int,
        do: Callable[[Job], None],
        policy: Policy[Job] | None = None,
    ) -> None:
        self._executor = executor
        self._width = width
        self._do = do
        self._policy: Policy[Job] = policy or Policy()
        self._changed = Condition()
        self._waiting: dict[str, deque[Job]] = {}
        self._ready: deque[str] = deque()
        self._busy: dict[str, _Execution[Job]] = {}
        self._closed = False

    def put(self, key: str, job: Job) -> None:
        """Have a job done after those already waiting for its key; dropped once closed."""
        with self._changed:
            if self._closed:
                return
            if key not in self._busy and key not in self._waiting:
                self._ready.append(key)
            self._waiting.setdefault(key, deque()).append(job)
        self._start()

    def start_delayed(self) -> None:
        """Begin what waits behind jobs that hang; called now and then, as no hang says so."""
        if self._executor is None:
            return
        with self._changed:
            overdue = self._policy.clock() - BEGIN_WITHIN_S
            delayed = [
                (key, execution)
                for key, execution in self._busy.items()
                if not execution.begun and execution.since <= overdue
            ]
        for key, execution in delayed:
            self._policy.spare(partial(self._run_then_start_next, key, execution))
        self._start()

    def touch(self, key: str) -> None:
        """Note a sign of life of the job that runs for a key."""
        with self._changed:
            if key in self._busy:
                self._busy[key].since = self._policy.clock()

    def is_busy(self, key: str) -> bool:
        """Say whether a job of the key runs."""
        with self._changed:
            return key in self._busy

    def running(self) -> tuple[Running[Job], ...]:
        """Return what is at work, the longest first."""
        with self._changed:
            now = self._policy.clock()
            found = [
                Running(key, execution.job, now - execution.since, self._hangs(execution, now))
                for key, execution in self._busy.items()
                if execution.begun
            ]
        return tuple(sorted(found, key=lambda running: -running.for_s))

    def blocked(self) -> tuple[tuple[str, Job, tuple[Job, ...]], ...]:
        """Return key, running job and waiting jobs of each key where jobs wait for another."""
        with self._changed:
            return tuple(
                (key, execution.job, tuple(self._waiting[key]))
                for key, execution in self._busy.items()
                if key in self._waiting
            )

    def close(self) -> None:
        """Drop what waits and take nothing new; what runs goes on."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._ready.clear()

    def wait_idle(self, timeout_s: float) -> bool:
        """Return whether every job has ended within the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy and not self._ready, timeout_s)

    def _start(self) -> None:
        while True:
            with self._changed:
                key = self._next()
                if key is None:
                    return
                self._ready.remove(key)
                execution = _Execution(self._pop_job(key), self._policy.clock())
                self._busy[key] = execution
                crowded = len(self._busy) > self._width
            if self._executor is None:
                self._run(key, execution)
            elif crowded:
                self._policy.spare(partial(self._run_then_start_next, key, execution))
            elif not self._submitted(self._executor, key, execution):
                return

    def _next(self) -> str | None:
        """Return the key that may begin now: the oldest, or beyond the width an urgent one."""
        if not self._ready or len(self._busy) >= max(MOST_THREADS, self._width):
            return None
        now = self._policy.clock()
        active = sum(not self._hangs(execution, now) for execution in self._busy.values())
        if active >= self._width + URGENT_WIDTH:
            return None
        urgent = (key for key in self._ready if self._policy.urgent(self._waiting[key][0]))
        return next(urgent, None if active >= self._width else self._ready[0])

    def _hangs(self, execution: _Execution[Job], now: float) -> bool:
        return execution.begun and now - execution.since >= self._policy.hang_after_s(execution.job)

    def _submitted(self, executor: Executor, key: str, execution: _Execution[Job]) -> bool:
        try:
            executor.submit(self._run_then_start_next, key, execution)
        except RuntimeError:
            # The process is going down; what was put here is in the journal.
            self.close()
            with self._changed:
                del self._busy[key]
                self._changed.notify_all()
            return False
        return True

    def _pop_job(self, key: str) -> Job:
        job = self._waiting[key].popleft()
        if not self._waiting[key]:
            del self._waiting[key]
        return job

    def _run_then_start_next(self, key: str, execution: _Execution[Job]) -> None:
        try:
            self._run(key, execution)
            self._start()
        except Exception:  # noqa: BLE001 - the thread is shared, its owner sees no exception
            structlog.get_logger().exception("job_failed", key=key)

    def _run(self, key: str, execution: _Execution[Job]) -> None:
        with self._changed:
            if execution.begun:
                return  # another thread was found for it
            execution.begun, execution.since = True, self._policy.clock()
        try:
            self._do(execution.job)
        finally:
            with self._changed:
                del self._busy[key]
                if key in self._waiting:
                    self._ready.append(key)
                self._changed.notify_all()
