"""Whether a process's own clock agrees with the database's, by which everything is decided."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from conductor.store import Store
from conductor.upkeep import PeriodicWork
from models.throttled_log import ThrottledLog
from models.units import seconds_text

TOLERATED_S: Final = 5.0

CLOCK: Final = "clock"
"""The part of a process's periodic work under which a clock that is off is shown."""

_warnings = ThrottledLog()


class OwnClock:
    """This process's clock as far as it is known how far it is off: the database's time of day."""

    def __init__(self, own: Callable[[], float] = time.time) -> None:
        self.ahead_s = 0.0
        self._own = own

    def utc(self) -> datetime:
        """Return what time it is by the database, without asking it."""
        return datetime.fromtimestamp(self._own() - self.ahead_s, UTC)


def off_by(store: Store, own: Callable[[], float] = time.time) -> float:
    """Return by how many seconds this process's clock is ahead of the database's (behind: < 0).

    What asking took is allowed for: 0 where the difference is no larger.
    """
    before = own()
    with store.read() as uow:
        theirs = uow.now
    after = own()
    if before - TOLERATED_S <= theirs <= after + TOLERATED_S:
        return 0.0
    return (before + after) / 2 - theirs


def explanation(off_s: float) -> str:
    """Return what is wrong with a clock, and what to do, in a sentence."""
    which = "ahead of" if off_s > 0 else "behind"
    return (
        f"the clock of this machine is {seconds_text(abs(off_s))} {which} the database's: nothing "
        "is decided by it, but set it (NTP)"
    )


def watch(
    store: Store,
    periodic_work: PeriodicWork,
    own: Callable[[], float] = time.time,
    clock: OwnClock | None = None,
) -> None:
    """Show, in `health` and the log, while this process's clock is off, and set `clock` by it."""
    off_s = off_by(store, own)
    if clock is not None:
        clock.ahead_s = off_s
    if not off_s:
        periodic_work.clear(CLOCK)
        return
    _warnings.warn("clock off", reason=explanation(off_s))
    # In whole minutes or so, lest it be written anew at each look.
    periodic_work.note(CLOCK, explanation(round(off_s / 10.0) * 10.0 or off_s))
