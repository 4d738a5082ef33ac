"""What hangs on a host: calls that have run for long without a sign of life, and their limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import Final

from models.ids import InstanceId
from models.messages.internal import MOST_CALLS, Canary, Instruction, LongCall, OutgoingMessage
from workers.actions.action_registry import CACHE_IMAGES, COPY, DESTROY, LONG, URGENT
from workers.keyed_executor import KeyedExecutor, Running
from workers.reports import Sender, heartbeat_message
from workers.settings import WorkerSettings

TOLD_AFTER_S: Final = 30.0
"""A call that has run for longer than this is told with every heartbeat."""
LONG_PATIENCE_S: Final = 300.0
"""What moves whole disks hangs only after so long without a sign of life."""
LISTING_PATIENCE_S: Final = 60.0
LIST_GUESTS: Final = "list_guests"


def is_urgent(instruction: Instruction) -> bool:
    """Say whether the instruction goes before others, and begins though many are at work."""
    return instruction.verb in URGENT


def patience_s(instruction: Instruction) -> float:
    """Return after how many seconds without a sign of life a call hangs."""
    return LONG_PATIENCE_S if instruction.verb in LONG else TOLD_AFTER_S


def limit_s(instruction: Instruction, settings: WorkerSettings) -> float:
    """Return after how many seconds without a sign of life a call is aborted."""
    if instruction.verb == CACHE_IMAGES:
        return settings.fetch_limit_s
    return settings.call_limit_s


def hangs(running: Sequence[Running[Instruction]], listing_s: float, width: int) -> bool:
    """Say whether so many calls hang that no more work should come.

    A list of guests that has been waited for so long says that the hypervisor answers nobody.
    """
    return sum(item.hangs for item in running) >= width or listing_s >= LISTING_PATIENCE_S


def long_calls(
    running: Sequence[Running[Instruction]], listing_s: float = 0.0
) -> tuple[LongCall, ...]:
    """Return what is told of calls that have run for long, the longest first."""
    listing = LongCall(verb=LIST_GUESTS, for_s=round(listing_s, 3))
    return (listing,) * (listing_s >= TOLD_AFTER_S) + tuple(
        LongCall(
            verb=item.job.verb,
            for_s=round(item.for_s, 3),
            instance_id=item.job.instance_id,
            operation_id=item.job.token.operation_id,
        )
        for item in running
        if item.for_s >= TOLD_AFTER_S
    )[: MOST_CALLS - 1]


def interrupts(newer: Instruction, running: Instruction) -> bool:
    """Say whether a waiting instruction ends the running one.

    A destroy ends whatever runs, so that no hang outlasts its instance; a copy may take hours, and
    ends for whatever is newer.
    """
    fence = running.token.fence
    if running.verb == COPY:
        return newer.token.fence > fence
    return newer.verb == DESTROY and newer.token.fence >= fence


FRESH_WITHIN_S: Final = 10.0
"""A list of guests that took longer may be older than what has been told of them since."""


class Aside:
    """Does one thing at a time in a thread of its own, so that its hanging delays nobody else."""

    def __init__(
        self, clock: Callable[[], float], spare: Callable[[Callable[[], None]], object]
    ) -> None:
        self._clock = clock
        self._spare = spare
        self._lock = Lock()
        self._since: float | None = None

    def run(self, work: Callable[[], None]) -> None:
        """Begin the work, unless what was begun before has not ended."""
        with self._lock:
            if self._since is not None:
                return
            self._since = self._clock()
        self._spare(partial(self._do, work))

    def since_s(self) -> float:
        """Return for how long it has been at work, 0 when it is not."""
        since = self._since
        return 0.0 if since is None else max(0.0, self._clock() - since)

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            self._since = None


class Watch:
    """What an agent knows of its own hearing and of what hangs, and tells with its heartbeats."""

    def __init__(
        self, lanes: KeyedExecutor[Instruction], settings: WorkerSettings, aside: Aside
    ) -> None:
        self._lanes = lanes
        self._settings = settings
        self._aside = aside
        self._heard_at = 0.0

    def hear(self, canary: Canary) -> None:
        """Note that a canary came through the queue."""
        self._heard_at = max(self._heard_at, canary.sent_at)

    def abort_hung(self, abort: Callable[[InstanceId], None]) -> None:
        """Abort calls that have shown no sign of life for too long; they are then answered so."""
        for lane in self._lanes.running():
            if lane.for_s >= limit_s(lane.job, self._settings):
                abort(InstanceId(lane.lane))

    def heartbeat(self, sender: Sender) -> OutgoingMessage:
        """Return the letter that says that the host lives, what it heard, what runs for long."""
        running, listing_s = self._lanes.running(), self._aside.since_s()
        stuck = hangs(running, listing_s, self._settings.concurrency)
        return heartbeat_message(sender, self._heard_at, long_calls(running, listing_s), stuck)

    def list_guests(
        self,
        write: Callable[[], OutgoingMessage],
        finished: Callable[[], int],
        post: Callable[[OutgoingMessage | None], None],
    ) -> None:
        """Write the list of guests aside, unless one is being written, and post it.

        One that took long while work was `finished` may know less than an answer that was posted
        before it: nothing is posted then, so that it is written again.
        """

        def look() -> None:
            before = finished()
            outgoing = write()
            slow = self._aside.since_s() >= FRESH_WITHIN_S
            post(None if slow and finished() != before else outgoing)

        self._aside.run(look)
