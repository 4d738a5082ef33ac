"""Work in lanes: one job at a time in each lane, a bounded number of lanes at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from threading import Condition
from typing import Generic, TypeVar

import structlog

Job = TypeVar("Job")


class Lanes(Generic[Job]):
    """Runs `do(job)` for every job put in a lane, in order within the lane.

    At most `width` lanes are worked on at once, by threads of `executor`. Without an executor
    the thread that calls `put` does the work before `put` returns, except for a job put in by
    a job of the same lane, which runs when that one has ended.
    """

    def __init__(self, executor: Executor | None, width: int, do: Callable[[Job], None]) -> None:
        self._executor = executor
        self._width = width
        self._do = do
        self._turn = Condition()
        self._waiting: dict[str, deque[Job]] = {}
        self._ready: deque[str] = deque()
        self._busy: dict[str, Job] = {}
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

    def held_up(self) -> tuple[tuple[str, Job, tuple[Job, ...]], ...]:
        """Return lane, running job and waiting jobs of each lane where jobs wait for another."""
        with self._turn:
            return tuple(
                (lane, job, tuple(self._waiting[lane]))
                for lane, job in self._busy.items()
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
                if not self._ready or len(self._busy) >= self._width:
                    return
                lane = self._ready.popleft()
                job = self._taken(lane)
                self._busy[lane] = job
            if self._executor is None:
                self._run(lane, job)
            elif not self._submitted(self._executor, lane, job):
                return

    def _submitted(self, executor: Executor, lane: str, job: Job) -> bool:
        try:
            executor.submit(self._run_and_go_on, lane, job)
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

    def _run_and_go_on(self, lane: str, job: Job) -> None:
        try:
            self._run(lane, job)
            self._start()
        except Exception:  # noqa: BLE001 - the thread is shared, its owner sees no exception
            structlog.get_logger().exception("job_failed", lane=lane)

    def _run(self, lane: str, job: Job) -> None:
        try:
            self._do(job)
        finally:
            with self._turn:
                del self._busy[lane]
                if lane in self._waiting:
                    self._ready.append(lane)
                self._turn.notify_all()
