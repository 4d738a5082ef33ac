"""What a journal's entries add up to: what is owed, what was answered, what is too old."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from models.messages.internal import Instruction, Reply
from workers.journal.entries import (
    Accepted,
    Entry,
    Finished,
    Obeys,
    Reported,
    Seen,
    Started,
    token_key,
)


class Verdict(Enum):
    """What is to be done with an instruction that has no recorded answer."""

    NEW = "new"
    RUNNING = "running"
    STALE = "stale"


Judgement: TypeAlias = Verdict | Reply
"""A verdict, or the recorded answer of a duplicate."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """How much is kept when the journal is rewritten; times in seconds."""

    replies: int
    replies_s: float
    fences_s: float


@dataclass(slots=True)
class _Answer:
    finished: Finished
    reported: bool = False


class Ledger:
    """The running sum of a journal. Not safe for threads: its owner holds a lock.

    The only state of an agent that matters; everything in it can be read back.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._owed: dict[str, Accepted] = {}
        self._answers: dict[str, _Answer] = {}
        self._seen: dict[str, Seen] = {}
        self.started: Started | None = None
        self.obeys: Obeys | None = None
        self.entries = 0
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Count one more entry."""
        self.entries += 1
        match entry:
            case Accepted(at, instruction):
                self._owed[token_key(instruction.token)] = entry
                self._see(at, instruction)
            case Finished(at, reply):
                key = token_key(reply.token)
                self._answers[key] = _Answer(entry)
                accepted = self._owed.pop(key, None)
                if accepted is not None:
                    self._did(at, accepted.instruction)
            case Reported(key):
                if key in self._answers:
                    self._answers[key].reported = True
            case Seen(instance_id=instance_id):
                self._seen[instance_id] = entry
            case Started():
                self.started = entry
            case Obeys(database=database):
                if self.obeys is not None and database != self.obeys.database:
                    # What another database has instructed says nothing of the order of this one's.
                    self._seen.clear()
                self.obeys = entry

    def judge(self, instruction: Instruction) -> Judgement:
        """Say what an instruction that has just arrived deserves.

        The newest instruction of an instance whose answer has been forgotten is stale too:
        it was reported long ago, and doing it again would not be doing it once.
        """
        key = token_key(instruction.token)
        if key in self._owed:
            return Verdict.RUNNING
        if key in self._answers:
            return self._answers[key].finished.reply
        seen = self._seen.get(instruction.instance_id)
        forgotten = seen is not None and seen.key == key
        return Verdict.STALE if forgotten or self.overtaken(instruction) else Verdict.NEW

    def overtaken(self, instruction: Instruction) -> bool:
        """Say whether a newer instruction for the same instance has been accepted."""
        seen = self._seen.get(instruction.instance_id)
        return seen is not None and instruction.token.fence < seen.fence

    def done_fences(self) -> dict[str, int]:
        """Return the highest fence of the finished instructions of each instance."""
        return {instance_id: seen.done for instance_id, seen in self._seen.items()}

    def owed(self) -> tuple[Instruction, ...]:
        """Return the accepted instructions without an answer, oldest first."""
        return tuple(accepted.instruction for accepted in self._owed.values())

    def unreported(self) -> tuple[Reply, ...]:
        """Return the answers that are not known to have left the host, oldest first."""
        return tuple(
            answer.finished.reply for answer in self._answers.values() if not answer.reported
        )

    def compacted(self, now: float, keeping: Keeping, present: Collection[str]) -> list[Entry]:
        """Return the fewest entries that add up to the same, forgetting what is old.

        What is owed or unreported is never forgotten, nor the fence of an instance with work
        under way or among those `present` on the host.
        """
        busy = {accepted.instruction.instance_id for accepted in self._owed.values()} | set(present)
        entries: list[Entry] = [
            seen
            for instance_id, seen in self._seen.items()
            if instance_id in busy or seen.at + keeping.fences_s > now
        ]
        entries[:0] = [entry for entry in (self.started, self.obeys) if entry is not None]
        entries.extend(self._owed.values())
        spare = max(0, len(self._answers) - keeping.replies)
        for position, (key, answer) in enumerate(self._answers.items()):
            old = position < spare or answer.finished.at + keeping.replies_s <= now
            if answer.reported and old:
                continue
            entries.append(answer.finished)
            if answer.reported:
                entries.append(Reported(key))
        return entries

    def _see(self, at: float, instruction: Instruction) -> None:
        token = instruction.token
        before = self._seen.get(instruction.instance_id)
        if before is None or token.fence >= before.fence:
            done = before.done if before else 0
            self._seen[instruction.instance_id] = Seen(
                at, instruction.instance_id, token.fence, token_key(token), done
            )

    def _did(self, at: float, instruction: Instruction) -> None:
        seen = self._seen[instruction.instance_id]
        done = max(seen.done, instruction.token.fence)
        self._seen[instruction.instance_id] = replace(seen, at=at, done=done)
