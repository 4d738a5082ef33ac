"""The record of an agent: its journal and the ledger of its entries, under one lock."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from threading import RLock

from models.errors import Broken, Unreachable
from models.messages.internal import Instruction, Reply
from workers.journal.entries import (
    Accepted,
    Entry,
    Finished,
    Obeys,
    Reported,
    Started,
    token_key,
)
from workers.journal.instruction_ledger import Keeping, Ledger, Verdict
from workers.journal.ports import Journal
from workers.settings import WorkerSettings


class Record:
    """Everything an agent must not forget. Written by one agent: after `close`, by its successor.

    Once the journal has failed, every method that writes raises that `Broken`: acting without
    a journal would be acting twice.
    """

    def __init__(
        self, journal: Journal, settings: WorkerSettings, clock: Callable[[], float]
    ) -> None:
        self._journal = journal
        self._settings = settings
        self._clock = clock
        self._gate = RLock()
        self._ledger = Ledger()
        self._compacted_size = 0
        self._open = False
        self._resumed: frozenset[str] = frozenset()
        self.failure: Broken | None = None
        self.finished = 0

    def load(self) -> None:
        """Read the journal and begin to write."""
        with self._gate:
            self._ledger = Ledger(self._journal.entries())
            self._compacted_size = 0
            self._open = True
            known = self._ledger.started
            self._write(Started(known.worker_id, known.boot + 1) if known else _first_start())
            self._resumed = frozenset(token_key(owed.token) for owed in self._ledger.owed())
        self.sync()

    @property
    def started(self) -> Started:
        """Return who this worker is, and which start of it this is; raise `Broken` before one."""
        if self._ledger.started is None:
            raise Broken("agent_not_started", "this agent has not been started")
        return self._ledger.started

    @property
    def obeys(self) -> Obeys | None:
        """Return which database is obeyed; None before the first."""
        with self._gate:
            return self._ledger.obeys

    def obey(self, obeys: Obeys) -> None:
        """Return once it is durable which database is obeyed from here on."""
        with self._gate:
            if not self._open:
                raise self.failure or Unreachable("agent_stopped", "this agent takes no more work")
            self._write(obeys)
        self.sync()

    def close(self) -> None:
        """Write nothing more."""
        with self._gate:
            self._open = False

    def accept(self, instruction: Instruction, stale: Reply) -> Reply | bool:
        """Judge an instruction; return, once that is durable, its answer or whether to begin it.

        `stale` is the answer recorded if it is too old; what is under way already is not begun.
        Raises `Unreachable` when closed.
        """
        with self._gate:
            if self.failure is not None:
                raise self.failure
            if not self._open:
                raise Unreachable("agent_stopped", "this agent takes no more work")
            judgement = self._ledger.judge(instruction)
            if judgement is Verdict.NEW:
                self._write(Accepted(self._clock(), instruction))
            elif judgement is Verdict.STALE:
                self._write(Finished(self._clock(), stale))
                judgement = stale
        # For duplicates too: what they repeat may not be on the disk yet.
        self.sync()
        return judgement if isinstance(judgement, Reply) else judgement is Verdict.NEW

    def overtaken(self, instruction: Instruction) -> bool:
        """Say whether a newer instruction for the same instance has been accepted."""
        with self._gate:
            return self._ledger.overtaken(instruction)

    def finish(self, reply: Reply) -> bool:
        """Return once the answer is durable; False when closed, with nothing written."""
        with self._gate:
            if not self._open:
                return False
            self._write(Finished(self._clock(), reply))
            self.finished += 1
        self.sync()
        return True

    def reported(self, key: str) -> None:
        """Note that an answer has left; a crash before the next sync sends it again, allowed."""
        with self._gate:
            if self._open:
                self._write(Reported(key))

    def owed(self) -> tuple[Instruction, ...]:
        """Return the accepted instructions without an answer, oldest first."""
        with self._gate:
            return self._ledger.owed()

    def resumed(self, instruction: Instruction) -> bool:
        """Say whether an instruction was accepted before the last start, and perhaps begun."""
        return token_key(instruction.token) in self._resumed

    def unreported(self) -> tuple[Reply, ...]:
        """Return the answers that are not known to have left, oldest first."""
        with self._gate:
            return self._ledger.unreported()

    def done_fences(self) -> dict[str, int]:
        """Return the highest fence of the finished instructions of each instance."""
        with self._gate:
            return self._ledger.done_fences()

    def sync(self) -> None:
        """Return when everything written is durable."""
        self._guarded(self._journal.sync)

    def compact(self, present: Collection[str]) -> None:
        """Rewrite the journal without what is old, once it has grown enough; else only sync."""
        settings = self._settings
        keeping = Keeping(settings.replies_kept, settings.replies_kept_s, settings.fences_kept_s)
        with self._gate:
            # Twice the size it was left with, so that what is rewritten is paid by what was added.
            enough = 2 * self._compacted_size + settings.compact_after
            if self._open and self._ledger.entries >= enough:
                entries = self._ledger.compacted(self._clock(), keeping, present)
                self._guarded(lambda: self._journal.rewrite(entries))
                self._ledger = Ledger(entries)
                self._compacted_size = len(entries)
        self.sync()

    def _write(self, entry: Entry) -> None:
        self._guarded(lambda: self._journal.write(entry))
        self._ledger.add(entry)

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Broken as error:
            self.failure = error
            self._open = False
            raise


def _first_start() -> Started:
    return Started(str(uuid.uuid4()), 1)
