"""A watchdog for hypervisor calls: which hang, when they are reported, and when aborted."""

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

REPORTED_AFTER_S: Final = 30.0
"""A call that has run for longer than this is listed in every heartbeat."""
LONG_HANG_AFTER_S: Final = 300.0
"""What moves whole disks hangs only after so long without a sign of life."""
LISTING_HANG_AFTER_S: Final = 60.0
"""A list of guests that takes longer says that the hypervisor answers nobody."""
LIST_GUESTS: Final = "list_guests"


def is_urgent(instruction: Instruction) -> bool:
    """Say whether the instruction goes before others, and begins though many are at work."""
    return instruction.verb in URGENT


def hang_after_s(instruction: Instruction) -> float:
    """Return after how many seconds without a sign of life a call hangs."""
    return LONG_HANG_AFTER_S if instruction.verb in LONG else REPORTED_AFTER_S


def limit_s(instruction: Instruction, settings: WorkerSettings) -> float:
    """Return after how many seconds without a sign of life a call is aborted."""
    if instruction.verb == CACHE_IMAGES:
        return settings.fetch_limit_s
    return settings.call_limit_s


def hangs(running: Sequence[Running[Instruction]], listing_s: float, width: int) -> bool:
    """Say whether so much hangs (calls, or the list of guests) that no more work should come."""
    return sum(call.hangs for call in running) >= width or listing_s >= LISTING_HANG_AFTER_S


def long_calls(
    running: Sequence[Running[Instruction]], listing_s: float = 0.0
) -> tuple[LongCall, ...]:
    """Return the calls that a heartbeat lists: those that have run for long, the longest first."""
    listing = LongCall(verb=LIST_GUESTS, for_s=round(listing_s, 3))
    return (listing,) * (listing_s >= REPORTED_AFTER_S) + tuple(
        LongCall(
            verb=call.job.verb,
            for_s=round(call.for_s, 3),
            instance_id=call.job.instance_id,
            operation_id=call.job.token.operation_id,
        )
        for call in running
        if call.for_s >= REPORTED_AFTER_S
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
"""A list of guests that took longer may be older than replies that were sent meanwhile."""


class SingleFlight:
    """Runs one piece of work at a time in a thread of its own, where a hang delays nobody else."""

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
        """Return for how many seconds the work has been running, 0 when there is none."""
        since = self._since
        return 0.0 if since is None else max(0.0, self._clock() - since)

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            self._since = None


class CallWatchdog:
    """Watches the calls of an agent and its queue (by canaries); heartbeats carry the result."""

    def __init__(
        self,
        calls: KeyedExecutor[Instruction],
        settings: WorkerSettings,
        listing: SingleFlight,
    ) -> None:
        self._calls = calls
        self._settings = settings
        self._listing = listing
        self._heard_at = 0.0

    def hear(self, canary: Canary) -> None:
        """Note that a canary came through the queue."""
        self._heard_at = max(self._heard_at, canary.sent_at)

    def abort_hung(self, abort: Callable[[InstanceId], None]) -> None:
        """Abort calls that have shown no sign of life for too long; their replies say so."""
        for call in self._calls.running():
            if call.for_s >= limit_s(call.job, self._settings):
                abort(InstanceId(call.key))

    def heartbeat(self, sender: Sender) -> OutgoingMessage:
        """Return the heartbeat: the newest canary received, and the calls that run for long."""
        running, listing_s = self._calls.running(), self._listing.since_s()
        stuck = hangs(running, listing_s, self._settings.concurrency)
        return heartbeat_message(sender, self._heard_at, long_calls(running, listing_s), stuck)

    def list_guests(
        self,
        write: Callable[[], OutgoingMessage],
        finished: Callable[[], int],
        post: Callable[[OutgoingMessage | None], None],
    ) -> None:
        """Write an inventory report in a thread of its own, unless one is being written; `post` it.

        One that took long while work was `finished` may be older than a reply that was posted
        before it: `post` is then called with None, so that it is written again.
        """

        def list_and_post() -> None:
            before = finished()
            outgoing = write()
            slow = self._listing.since_s() >= FRESH_WITHIN_S
            post(None if slow and finished() != before else outgoing)

        self._listing.run(list_and_post)
