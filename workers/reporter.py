"""Posts an agent's reports in order, at least once each: what fails waits and is retried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event, Lock
from typing import TypeAlias

import structlog
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential
from tenacity.nap import sleep_using_event

from models.errors import ConductorError, Unreachable
from models.messages.internal import OutgoingMessage
from workers.settings import WorkerSettings

Post: TypeAlias = Callable[[Sequence[OutgoingMessage]], None]
"""Publishes messages: returns when the broker has them, raises `Unreachable` otherwise."""

Write: TypeAlias = Callable[[], OutgoingMessage]
"""Writes a message at the moment it is posted, so that it says what is true then."""


RETRY_WAIT_MAX_S = 5.0
"""Longest wait between two attempts of a call within one piece of work."""


def retrying(settings: WorkerSettings, stopped: Event) -> Retrying:
    """Return the retry policy of a call whose outcome may be unknown."""
    return Retrying(
        retry=retry_if_exception(
            lambda error: isinstance(error, Unreachable) and not stopped.is_set()
        ),
        stop=stop_after_attempt(settings.attempts),
        wait=wait_random_exponential(multiplier=settings.retry_wait_s, max=RETRY_WAIT_MAX_S),
        sleep=sleep_using_event(stopped),
        reraise=True,
    )


@dataclass(frozen=True, slots=True)
class _Report:
    key: str
    write: Write


class Reporter:
    """Keeps each report until it is posted. Threads that report together share one post.

    One thread posts at a time and in order of submission: an inventory report is written after
    every reply that is posted before it. While the carrier is unreachable only probes try it.
    """

    def __init__(self, post: Post, posted: Callable[[str], None], retrying: Retrying) -> None:
        self._post = post
        self._posted = posted
        self._retrying = retrying
        self._lock = Lock()
        self._waiting: dict[str, _Report] = {}
        self._posting = False
        self._down = False
        self._closed = False

    def submit(self, key: str, write: Write) -> None:
        """Take a report to be posted; it replaces one of the same key that still waits."""
        with self._lock:
            self._waiting[key] = _Report(key, write)

    def flush(self, probe: bool = False) -> None:
        """Post what waits, unless another thread is doing so; call `posted` for each key.

        Never raises for a carrier that does not take it: what is left waits for a probe.
        """
        while True:
            with self._lock:
                idle = not self._waiting or self._posting or self._closed
                if idle or (self._down and not probe):
                    return
                self._posting = True
                batch = tuple(self._waiting.values())
            done: tuple[_Report, ...] = ()
            try:
                done = self._sent(batch)
            finally:
                self._settle(done)
            for report in done:
                self._posted(report.key)
            if not done:
                return

    def close(self) -> None:
        """Send nothing more."""
        with self._lock:
            self._closed = True

    def _settle(self, done: tuple[_Report, ...]) -> None:
        with self._lock:
            for report in done:
                if self._waiting.get(report.key) is report:
                    del self._waiting[report.key]
            self._posting = False

    def _sent(self, batch: tuple[_Report, ...]) -> tuple[_Report, ...]:
        """Return the reports that the carrier has taken."""
        ready = [
            (report, outgoing) for report in batch if (outgoing := _written(report)) is not None
        ]
        if not ready or self._closed:
            return ()
        self._down = False
        try:
            self._retrying(self._post, [outgoing for _, outgoing in ready])
        except Unreachable as error:
            self._down = True
            log = structlog.get_logger()
            log.warning("reports_wait", waiting=len(batch), code=error.code, error=error.message)
            return ()
        except ConductorError:
            # The carrier refuses one of them: they are posted one by one to find which.
            return tuple(report for report, outgoing in ready if self._accepted(report, outgoing))
        return tuple(report for report, _ in ready)

    def _accepted(self, report: _Report, outgoing: OutgoingMessage) -> bool:
        try:
            self._post([outgoing])
        except ConductorError as error:
            log = structlog.get_logger()
            log.warning("report_refused", key=report.key, code=error.code, error=error.message)
            return False
        return True


def _written(report: _Report) -> OutgoingMessage | None:
    try:
        return report.write()
    except ConductorError as error:
        log = structlog.get_logger()
        log.warning("report_unwritten", key=report.key, code=error.code, error=error.message)
        return None
