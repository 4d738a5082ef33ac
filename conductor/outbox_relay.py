"""Transactional outbox: sends the messages of committed transactions, at least once each.

A message is a row of the outbox, written by the transaction that posts it. Its process sends it
after the commit and deletes the row, in batches, once the carrier has it. A crash between the two
sends a message twice and never loses one; a sweeper republishes what crashed processes left behind.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

import structlog

from conductor.store import OutboxRow, Store
from models.errors import Conflict, Unreachable, defect_text
from models.messages.carrier import Carrier
from models.messages.internal import OutgoingMessage
from models.throttled_log import ThrottledLog

log = structlog.get_logger(__name__)

SWEEP_AFTER_S = 1.0
"""Rows older than this belong to whoever sweeps first."""
SWEEP_BATCH = 500
DELETE_BATCH = 128
REPORT_EVERY_S = 30.0
_warnings = ThrottledLog()


@dataclass(frozen=True, slots=True)
class Unsent:
    """What was not sent: ids, why some never can be, and whether the broker is `away` for all."""

    ids: frozenset[str] = frozenset()
    unsendable: Mapping[str, str] = field(default_factory=dict)
    away: bool = False


class OutboxRelay:
    """Sends messages of committed transactions and deletes the rows of those that were sent."""

    def __init__(
        self,
        store: Store,
        carrier: Carrier,
        on_unroutable: Callable[[Collection[str]], None] = lambda _: None,
    ) -> None:
        """Send by `carrier`; queues that no message reaches go to `on_unroutable` at times."""
        self._store = store
        self._carrier = carrier
        self._on_unroutable = on_unroutable
        self._reported_at: dict[str, float] = {}
        self._lock = threading.Lock()
        self._sent: list[str] = []

    def publish(self, outgoing_messages: Sequence[OutgoingMessage]) -> Unsent:
        """Send messages of a committed transaction; what is not sent now is swept up later.

        Returns those that were not sent. Raises nothing: what is written is written.
        """
        if not outgoing_messages:
            return Unsent()
        unsent = self._send(outgoing_messages)
        with self._lock:
            self._sent.extend(
                outgoing.id for outgoing in outgoing_messages if outgoing.id not in unsent.ids
            )
            full = len(self._sent) >= DELETE_BATCH
        if full:
            self.delete_sent()
        return unsent

    def delete_sent(self) -> None:
        """Delete the rows of messages that were sent, where no other transaction has done so.

        Every transaction of `Transactions.run` deletes some, so under load this costs no commit
        of its own.
        """
        if not self._sent:
            return
        with (
            suppress(Conflict, Unreachable),
            self.sent_rows() as sent,
            self._store.begin() as uow,
        ):
            uow.outbox.drop_many(sent)

    @contextmanager
    def sent_rows(self) -> Iterator[list[str]]:
        """Yield ids of rows to delete in a transaction; they are kept should that fail."""
        with self._lock:
            sent, self._sent = self._sent[:DELETE_BATCH], self._sent[DELETE_BATCH:]
        try:
            yield sent
        except BaseException:
            with self._lock:
                self._sent = sent + self._sent
            raise

    def sweep(self) -> list[tuple[OutboxRow, str]]:
        """Send messages that their own process has not sent within a second.

        Returns those that can never be sent, with the reason: whoever sweeps sets them aside. What
        cannot be sent for now goes behind the others, lest enough of it block the way.
        """
        self.delete_sent()
        with self._store.read() as uow:
            rows = uow.outbox.older_than(uow.now - SWEEP_AFTER_S, SWEEP_BATCH)
        unsent = self.publish([_message(row) for row in rows])
        self.delete_sent()
        late = [row for row in rows if row.id in unsent.ids and row.id not in unsent.unsendable]
        if late and not unsent.away:
            self._put_back(late)
        return [(row, unsent.unsendable[row.id]) for row in rows if row.id in unsent.unsendable]

    def _put_back(self, rows: Sequence[OutboxRow]) -> None:
        with self._store.begin() as uow:
            for row in rows:
                # One that another process has sent meanwhile stays deleted.
                if uow.outbox.lock(row.id) is not None:
                    uow.outbox.put(replace(row, created_at=uow.now))

    def _send(self, outgoing_messages: Sequence[OutgoingMessage]) -> Unsent:
        try:
            self._carrier.send(outgoing_messages)
        except Unreachable as error:
            unsendable = dict(error.data.get("unsendable", {}))
            ids = frozenset(
                error.data.get("unsent") or (outgoing.id for outgoing in outgoing_messages)
            )
            _warnings.warn("messages wait in the outbox", count=len(ids), reason=error.message)
            self._report_unroutable(error.data.get("queues", ()))
            return Unsent(ids, unsendable, away=error.code == "broker_unreachable")
        except Exception as error:
            if len(outgoing_messages) > 1:
                # One of them is to blame: each is sent by itself, and the others leave.
                return _joined(self._send([outgoing]) for outgoing in outgoing_messages)
            [outgoing] = outgoing_messages
            log.exception("a message cannot be sent", id=outgoing.id, task=outgoing.task)
            why = defect_text("it cannot be sent", error)
            return Unsent(frozenset({outgoing.id}), {outgoing.id: why})
        return Unsent()

    def _report_unroutable(self, queues: Collection[str]) -> None:
        """Report queues that no message reaches, and not again with every sweep."""
        now = time.monotonic()
        due = [
            queue
            for queue in queues
            if now - self._reported_at.get(queue, -math.inf) >= REPORT_EVERY_S
        ]
        self._reported_at.update(dict.fromkeys(due, now))
        if due:
            with suppress(Conflict, Unreachable):
                self._on_unroutable(due)


def _joined(parts: Iterable[Unsent]) -> Unsent:
    every = list(parts)
    ids = frozenset(identifier for part in every for identifier in part.ids)
    unsendable = {key: why for part in every for key, why in part.unsendable.items()}
    return Unsent(ids, unsendable, away=any(part.away for part in every))


def _message(row: OutboxRow) -> OutgoingMessage:
    return OutgoingMessage(
        row.queue, row.task, row.body, row.id, row.root_id, row.parent_id, row.shown
    )
