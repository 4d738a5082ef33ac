"""Holding on to a message while the store is away, instead of losing it or spinning on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import structlog
import tenacity

from models.errors import Conflict, Unreachable

T = TypeVar("T")

HOLD_S = 600.0
"""How long messages are held unacknowledged; well below the broker's consumer timeout (30 min)."""

_MOST_WAIT_S = 5.0
_MOST_CONFLICTS = 20

_log = structlog.get_logger(__name__)


class GivenBackError(Exception):
    """The process stops before the call could succeed: its message goes back to the queue."""


class StoreRetry:
    """What all handlers of one process know together about whether the store answers.

    A call that finds the store away is repeated by its own thread, with growing waits, until it
    succeeds: its message stays unacknowledged. When that lasts longer than `hold_s`, the consumer
    lets go of the connection, so that everything returns to the queue, and comes back when a call
    has succeeded. A call that succeeds after its message has returned is answered a second time,
    which changes nothing.
    """

    def __init__(self, hold_s: float = HOLD_S, most_wait_s: float = _MOST_WAIT_S) -> None:
        """Hold messages for `hold_s` seconds, with at most `most_wait_s` between two calls."""
        self._hold_s = hold_s
        self._most_wait_s = most_wait_s
        self._stopping = threading.Event()
        self._away_since: float | None = None

    def keep_trying(self, call: Callable[[], T]) -> T:
        """Return what `call` returns, repeating it while it raises `Unreachable` or `Conflict`.

        Raises `GivenBackError` when the process stops meanwhile, `Conflict` when somebody else
        has moved first twenty times in a row, and every other error at once.
        """
        try:
            result = call()
        except (Unreachable, Conflict):
            result = self._again(call)
        self._away_since = None
        return result

    def is_over(self) -> bool:
        """Say whether the store has been away for so long that messages must go back."""
        since = self._away_since
        return since is not None and time.monotonic() - since > self._hold_s

    def stop(self) -> None:
        """Let calls that are waiting end with `GivenBackError`."""
        self._stopping.set()

    def _again(self, call: Callable[[], T]) -> T:
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type((Unreachable, Conflict)),
            wait=tenacity.wait_random_exponential(multiplier=0.02, max=self._most_wait_s),
            stop=self._ends,
            sleep=tenacity.sleep_using_event(self._stopping),
            before_sleep=self._note,
            reraise=True,
        )
        try:
            return retrying(call)
        except (Unreachable, Conflict) as error:
            if self._stopping.is_set():
                raise GivenBackError(str(error)) from error
            raise

    def _ends(self, state: tenacity.RetryCallState) -> bool:
        conflict = isinstance(_error(state), Conflict)
        return self._stopping.is_set() or (conflict and state.attempt_number >= _MOST_CONFLICTS)

    def _note(self, state: tenacity.RetryCallState) -> None:
        error = _error(state)
        if isinstance(error, Unreachable) and self._away_since is None:
            self._away_since = time.monotonic()
            _log.warning("the store is away: messages are held", reason=str(error))


def _error(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None
