"""Transactions with their letters: run, commit, publish, forget; and sweep up after the dead."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
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
from conductor.throttled_log import RareWarnings
from models.errors import Conflict, Unreachable
from models.messages.carrier import Carrier
from models.messages.internal import OutgoingMessage

log = structlog.get_logger(__name__)
R = TypeVar("R")

SWEEP_AFTER_S = 1.0
SWEEP_BATCH = 500
FORGET_BATCH = 128
TELL_EVERY_S = 30.0
_warnings = RareWarnings()


@dataclass(frozen=True, slots=True)
class Left:
    """What has not left: ids, why some never can, and whether the broker is `away` for all."""

    ids: frozenset[str] = frozenset()
    unsendable: Mapping[str, str] = field(default_factory=dict)
    away: bool = False


class Outbox:
    """Runs work in transactions and lets its letters leave after the commit.

    The row of a letter goes only after the carrier has it, in batches, so a crash between the
    two sends a letter twice and never loses one. Rows older than a second belong to whoever
    sweeps first.
    """

    def __init__(
        self,
        store: Store,
        carrier: Carrier,
        no_way_to: Callable[[Collection[str]], None] = lambda _: None,
    ) -> None:
        """Send by `carrier`; `no_way_to` is told, at times, of queues that no message reaches."""
        self._store = store
        self._carrier = carrier
        self._no_way_to = no_way_to
        self._told: dict[str, float] = {}
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

    def publish(self, outgoing_messages: Sequence[OutgoingMessage]) -> Left:
        """Send letters of a committed transaction; what does not leave now is swept up later.

        Returns those that have not left. Raises nothing: what is written is written.
        """
        if not outgoing_messages:
            return Left()
        left = self._sent_all(outgoing_messages)
        with self._lock:
            self._sent.extend(
                outgoing.id for outgoing in outgoing_messages if outgoing.id not in left.ids
            )
            full = len(self._sent) >= FORGET_BATCH
        if full:
            self.forget()
        return left

    def _tell_of(self, queues: Collection[str]) -> None:
        """Tell of queues that no message reaches, and not again with every sweep."""
        now = time.monotonic()
        news = [queue for queue in queues if now - self._told.get(queue, -math.inf) >= TELL_EVERY_S]
        self._told.update(dict.fromkeys(news, now))
        if news:
            with suppress(Conflict, Unreachable):
                self._no_way_to(news)

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

    def keep_dead_letter(self, outgoing: DeadLetter) -> None:
        """Keep a message that could not be handled; the same id again changes nothing."""
        self.run(lambda uow: kept_once(uow, outgoing))

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

    def sweep(self) -> list[tuple[OutboxRow, str]]:
        """Send letters that their own process has not sent within a second.

        Returns those that can never be sent, with the reason: whoever sweeps sets them aside. What
        cannot leave for now goes behind the others, lest enough of it block the way.
        """
        self.forget()
        with self._store.read() as uow:
            rows = uow.outbox.older_than(uow.now - SWEEP_AFTER_S, SWEEP_BATCH)
        left = self.publish([_letter(row) for row in rows])
        self.forget()
        late = [row for row in rows if row.id in left.ids and row.id not in left.unsendable]
        if late and not left.away:
            self._put_back(late)
        return [(row, left.unsendable[row.id]) for row in rows if row.id in left.unsendable]

    def _put_back(self, rows: Sequence[OutboxRow]) -> None:
        with self._store.begin() as uow:
            for row in rows:
                # One that another process has sent meanwhile stays gone.
                if uow.outbox.lock(row.id) is not None:
                    uow.outbox.put(replace(row, created_at=uow.now))

    def _sent_all(self, outgoing_messages: Sequence[OutgoingMessage]) -> Left:
        try:
            self._carrier.send(outgoing_messages)
        except Unreachable as error:
            unsendable = dict(error.data.get("unsendable", {}))
            ids = frozenset(
                error.data.get("unsent") or (outgoing.id for outgoing in outgoing_messages)
            )
            _warnings.say("letters wait in the outbox", count=len(ids), reason=error.message)
            self._tell_of(error.data.get("queues", ()))
            return Left(ids, unsendable, away=error.code == "broker_unreachable")
        except Exception as error:
            if len(outgoing_messages) > 1:
                # One of them is to blame: each by itself, and the others leave.
                return _joined(self._sent_all([outgoing]) for outgoing in outgoing_messages)
            log.exception(
                "a letter cannot be sent",
                id=outgoing_messages[0].id,
                task=outgoing_messages[0].task,
            )
            why = f"{type(error).__name__}: {error}"
            return Left(frozenset({outgoing_messages[0].id}), {outgoing_messages[0].id: why})
        return Left()


def _joined(parts: Iterable[Left]) -> Left:
    every = list(parts)
    ids = frozenset(identifier for part in every for identifier in part.ids)
    unsendable = {key: why for part in every for key, why in part.unsendable.items()}
    return Left(ids, unsendable, away=any(part.away for part in every))


def kept_once(uow: UnitOfWork, outgoing: DeadLetter) -> bool:
    """Keep a message that could not be handled, and say whether it was not kept before."""
    if uow.dead_letters.get(outgoing.id) is not None:
        return False
    # As the others are, by the clock that all processes share: they are kept for so long.
    uow.dead_letters.add(replace(outgoing, at=uow.now))
    return True


def _letter(row: OutboxRow) -> OutgoingMessage:
    return OutgoingMessage(
        row.queue, row.task, row.body, row.id, row.root_id, row.parent_id, row.shown
    )
