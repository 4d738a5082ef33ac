"""How long a test may wait: seconds of a quiet machine, stretched by how busy this one is.

A limit ends what hangs, and decides nothing else. It grows while it runs: whoever makes the
machine busy in the middle of a wait stretches that wait too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

QUIET = 1.5
"""What a quiet machine of another kind may need more than the one where limits were chosen."""


def limit_s(quiet_s: float) -> float:
    """Return how long something may take now that takes at most `quiet_s` where nothing else runs.

    Whoever shares a CPU with n others gets an n-th of it, and twice that is left for waits that
    follow one another.
    """
    waiting = os.getloadavg()[0] / (os.cpu_count() or 1)
    return quiet_s * max(QUIET, 2 * waiting)


class Limit:
    """A wait of at most `quiet_s` of a quiet machine, begun now."""

    def __init__(self, quiet_s: float) -> None:
        self.quiet_s = quiet_s
        self._began = time.monotonic()

    @property
    def over(self) -> bool:
        """Whether it has been waited long enough."""
        return time.monotonic() - self._began > limit_s(self.quiet_s)


def wait_for(look: Callable[[], T], what: str, quiet_s: float = 30.0, poll_s: float = 0.02) -> T:
    """Return what `look` returns once that is something; fail with `what` when it never is."""
    limit = Limit(quiet_s)
    while not (found := look()):
        assert not limit.over, f"waited {limit_s(quiet_s):.0f} s for {what}"
        time.sleep(poll_s)
    return found
