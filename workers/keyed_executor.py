"""Work in lanes: one job at a time in each lane, a bounded number of lanes at once."""

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
"""How many more lanes may be at work when what they do is urgent."""
MOST_THREADS: Final = 64
"""However many jobs hang, no more than so many run at once."""
BEGIN_WITHIN_S: Final = 30.0
"""How long a job may wait for a thread of an executor that others may have clogged."""


def _never(_: Any) -> bool:
    return False


def _for_ever(_: Any) -> float:
    return math.inf


def in_a_thread(work: Callable[[], None]) -> None:
    """Do the work in a thread of its own, which keeps no process from ending."""
    Thread(target=work, name="spare", daemon=True).start()


@dataclass(frozen=True, slots=True)
class Policy(Generic[Job]):
    """Which jobs are urgent, and after how many seconds without a sign of life one hangs."""

    urgent: Callable[[Job], bool] = _never
    patience_s: Callable[[Job], float] = _for_ever
    clock: Callable[[], float] = time.monotonic
    spare: Callable[[Callable[[], None]], object] = in_a_thread
    """Does work for which no thread of the executor is to be counted on."""


@dataclass(frozen=True, slots=True)
class Running(Generic[Job]):
    """A job at work: its lane, for how long without a sign of life, and whether it hangs."""

    lane: str
    job: Job
    for_s: float
    hangs: bool


@dataclass(eq=False, slots=True)
class _Turn(Generic[Job]):
    job: Job
    since: float
    begun: bool = False


class KeyedExecutor(Generic[Job]):
    """Runs `do(job)` for every job put in a lane, in order within the lane.

    At most `width` lanes are worked on at once, by threads of `executor`. One that hangs is not
    counted: others go on without it, in threads of their own, up to `MOST_THREADS`. What is
    urgent comes first, and begins though `width` lanes are at work. Without an executor the
    thread that calls `put` does the work before `put` returns, except for a job put in by a job
    of the same lane, which runs when that one has ended.
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
        self._turn = Condition()
        self._waiting: dict[str, deque[Job]] = {}
        self._ready: deque[str] = deque()
        self._busy: dict[str, _Turn[Job]] = {}
        self._closed = False

    def put(self, lane: str, job: Job) -> None:
        """Have a job done after those already in its lane; dropped once closed."""
        with self._turn:
            if self._closed:
                return
            if lane not in self._busy and lane not in self._waiting:
                self._ready.append(lane)
            self._waiting.setdefault(lane, deque()).append(job)
        self._start()

    def release_providers(self) -> None:
        """Begin what waits behind jobs that hang; called now and then, as no hang says so."""
        if self._executor is None:
            return
        with self._turn:
            late = self._policy.clock() - BEGIN_WITHIN_S
            clogged = [
                (lane, turn)
                for lane, turn in self._busy.items()
                if not turn.begun and turn.since <= late
            ]
        for lane, turn in clogged:
            self._policy.spare(partial(self._run_and_go_on, lane, turn))
        self._start()

    def touch(self, lane: str) -> None:
        """Note a sign of life of the job that runs in a lane."""
        with self._turn:
            if lane in self._busy:
                self._busy[lane].since = self._policy.clock()

    def running(self) -> tuple[Running[Job], ...]:
        """Return what is at work, the longest first."""
        with self._turn:
            now = self._policy.clock()
            found = [
                Running(lane, turn.job, now - turn.since, self._hangs(turn, now))
                for lane, turn in self._busy.items()
                if turn.begun
            ]
        return tuple(sorted(found, key=lambda item: -item.for_s))

    def held_up(self) -> tuple[tuple[str, Job, tuple[Job, ...]], ...]:
        """Return lane, running job and waiting jobs of each lane where jobs wait for another."""
        with self._turn:
            return tuple(
                (lane, turn.job, tuple(self._waiting[lane]))
                for lane, turn in self._busy.items()
                if lane in self._waiting
            )

    def close(self) -> None:
        """Drop what waits and take nothing new; what runs goes on."""
        with self._turn:
            self._closed = True
            self._waiting.clear()
            self._ready.clear()

    def wait_idle(self, timeout_s: float) -> bool:
        """Return whether everything has ended within the timeout."""
        with self._turn:
            return self._turn.wait_for(lambda: not self._busy and not self._ready, timeout_s)

    def _start(self) -> None:
        while True:
            with self._turn:
                lane = self._next()
                if lane is None:
                    return
                self._ready.remove(lane)
                turn = _Turn(self._taken(lane), self._policy.clock())
                self._busy[lane] = turn
                crowded = len(self._busy) > self._width
            if self._executor is None:
                self._run(lane, turn)
            elif crowded:
                self._policy.spare(partial(self._run_and_go_on, lane, turn))
            elif not self._submitted(self._executor, lane, turn):
                return

    def _next(self) -> str | None:
        """Return the lane that may begin now: the oldest, or behind a full width one in a hurry."""
        if not self._ready or len(self._busy) >= max(MOST_THREADS, self._width):
            return None
        now = self._policy.clock()
        active = sum(not self._hangs(turn, now) for turn in self._busy.values())
        if active >= self._width + URGENT_WIDTH:
            return None
        urgent = (lane for lane in self._ready if self._policy.urgent(self._waiting[lane][0]))
        return next(urgent, None if active >= self._width else self._ready[0])

    def _hangs(self, turn: _Turn[Job], now: float) -> bool:
        return turn.begun and now - turn.since >= self._policy.patience_s(turn.job)

    def _submitted(self, executor: Executor, lane: str, turn: _Turn[Job]) -> bool:
        try:
            executor.submit(self._run_and_go_on, lane, turn)
        except RuntimeError:
            # The process is going down; what was put here is in the journal.
            self.close()
            with self._turn:
                del self._busy[lane]
                self._turn.notify_all()
            return False
        return True

    def _taken(self, lane: str) -> Job:
        job = self._waiting[lane].popleft()
        if not self._waiting[lane]:
            del self._waiting[lane]
        return job

    def _run_and_go_on(self, lane: str, turn: _Turn[Job]) -> None:
        try:
            self._run(lane, turn)
            self._start()
        except Exception:  # noqa: BLE001 - the thread is shared, its owner sees no exception
            structlog.get_logger().exception("job_failed", lane=lane)

    def _run(self, lane: str, turn: _Turn[Job]) -> None:
        with self._turn:
            if turn.begun:
                return  # another thread was found for it
            turn.begun, turn.since = True, self._policy.clock()
        try:
            self._do(turn.job)
        finally:
            with self._turn:
                del self._busy[lane]
                if lane in self._waiting:
                    self._ready.append(lane)
                self._turn.notify_all()
