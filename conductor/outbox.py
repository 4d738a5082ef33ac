"""Transactions with their letters: run, commit, publish, forget; and sweep up after the dead."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TypeVar

import structlog
from tenacity import (
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from conductor.store.ports import Store, UnitOfWork
from conductor.store.records import DeadLetter, OutboxRow
from models.errors import Conflict, Unreachable
from models.messages.carrier import Carrier
from models.messages.letters import Letter
from models.secrets import masked

log = structlog.get_logger(__name__)
R = TypeVar("R")

SWEEP_AFTER_S = 1.0
SWEEP_BATCH = 500
FORGET_BATCH = 128


class Outbox:
    """Runs work in transactions and lets its letters leave after the commit.

    The row of a letter goes only after the carrier has it, in batches, so a crash between the
    two sends a letter twice and never loses one. Rows older than a second belong to whoever
    sweeps first.
    """

    def __init__(self, store: Store, carrier: Carrier) -> None:
        self._store = store
        self._carrier = carrier
        self._lock = threading.Lock()
        self._sent: list[str] = []

    def run(self, work: Callable[[UnitOfWork], R]) -> R:
        """Run `work` in one transaction, again when somebody moved first, and send its letters."""
        for attempt in Retrying(
            retry=retry_if_exception_type(Conflict),
            stop=stop_after_attempt(12),
            wait=wait_random_exponential(multiplier=0.01, max=1.0),
            reraise=True,
        ):
            with attempt:
                with self._forgetting() as sent, self._store.begin() as uow:
                    result = work(uow)
                    if sent:
                        uow.outbox.drop_many(sent)
                self.publish(list(uow.posted))
        return result

    def publish(self, letters: Sequence[Letter]) -> set[str]:
        """Send letters of a committed transaction; what does not leave now is swept up later.

        Returns the ids of those that have not left.
        """
        if not letters:
            return set()
        left: set[str] = set()
        try:
            self._carrier.send(letters)
        except Unreachable as error:
            left = set(error.data.get("letters") or (letter.id for letter in letters))
            log.warning("letters wait in the outbox", count=len(left), reason=error.message)
        except Exception as error:  # noqa: BLE001  # one that no carrier takes must not stop others
            return self._one_by_one(letters, f"it cannot be sent: {error}"[:300])
        with self._lock:
            self._sent.extend(letter.id for letter in letters if letter.id not in left)
            full = len(self._sent) >= FORGET_BATCH
        if full:
            self.forget()
        return left

    def _one_by_one(self, letters: Sequence[Letter], reason: str) -> set[str]:
        """Send each letter by itself; one that cannot be sent alone becomes a dead letter."""
        if len(letters) > 1:
            return set().union(*(self.publish([letter]) for letter in letters))
        [letter] = letters
        log.error("a letter cannot be sent", id=letter.id, task=letter.task, reason=reason)
        body = json.dumps(masked(dict(letter.body)))

        try:
            with self._store.begin() as uow:
                uow.outbox.drop_many([letter.id])
                if uow.dead_letters.get(letter.id) is None:
                    dead = DeadLetter(letter.id, uow.now, letter.queue, letter.task, reason, body)
                    uow.dead_letters.add(dead)
        except (Conflict, Unreachable):
            return {letter.id}
        return set()

    def forget(self) -> None:
        """Delete the rows of letters that have left, where no other transaction has taken them.

        Every transaction of `run` takes them along, so under load this costs no commit of its own.
        """
        if not self._sent:
            return
        with (
            suppress(Conflict, Unreachable),
            self._forgetting() as sent,
            self._store.begin() as uow,
        ):
            uow.outbox.drop_many(sent)

    def keep_dead_letter(self, letter: DeadLetter) -> None:
        """Keep a message that could not be handled; the same id again changes nothing."""
        self.run(lambda uow: kept_once(uow, letter))

    @contextmanager
    def _forgetting(self) -> Iterator[list[str]]:
        """Give out what has left, and take it back when it could not be forgotten."""
        with self._lock:
            sent, self._sent = self._sent[:FORGET_BATCH], self._sent[FORGET_BATCH:]
        try:
            yield sent
        except BaseException:
            with self._lock:
                self._sent = sent + self._sent
            raise

    def sweep(self) -> int:
        """Send letters that their own process has not sent within a second; return how many."""
        self.forget()
        with self._store.read() as uow:
            rows = uow.outbox.older_than(uow.now - SWEEP_AFTER_S, SWEEP_BATCH)
        left = self.publish([_letter(row) for row in rows])
        self.forget()
        if left and len(left) < len(rows):
            self._put_back([row for row in rows if row.id in left])
        return len(rows)

    def _put_back(self, rows: Sequence[OutboxRow]) -> None:
        """Put letters that cannot leave behind the others, lest enough of them block the way."""
        with self._store.begin() as uow:
            for row in rows:
                uow.outbox.put(replace(row, created_at=uow.now))


def kept_once(uow: UnitOfWork, letter: DeadLetter) -> bool:
    """Keep a message that could not be handled, and say whether it was not kept before."""
    if uow.dead_letters.get(letter.id) is not None:
        return False
    uow.dead_letters.add(letter)
    return True


def _letter(row: OutboxRow) -> Letter:
    return Letter(row.queue, row.task, row.body, row.id, row.root_id, row.parent_id, row.shown)
