"""One message that nobody can send keeps no other waiting, and is kept with the reason."""

from __future__ import annotations

from collections.abc import Sequence

from conductor.outbox_relay import SWEEP_AFTER_S
from conductor.store.memory.memory_store import MemoryStore
from conductor.transactions import Transactions
from models.messages.internal import OutgoingMessage


class Picky:
    """Carries everything but what is for a queue with too long a name, as AMQP does."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def send(self, outgoing_messages: Sequence[OutgoingMessage]) -> None:
        for outgoing in outgoing_messages:
            bytes([len(outgoing.queue)])
            self.sent.append(outgoing.id)


FAILED = "it cannot be sent (ValueError): the log of the process has the error"


def outgoing(queue: str, id_: str) -> OutgoingMessage:
    return OutgoingMessage(queue, "compute.spawn", {"a": 1}, id_)


def test_what_cannot_be_sent_is_named_and_the_rest_leaves() -> None:
    now = 100.0
    store, carrier = MemoryStore(clock=lambda: now), Picky()
    transactions = Transactions(store, carrier)
    with store.begin() as uow:
        for posted in (outgoing("a", "1"), outgoing("x" * 300, "2"), outgoing("b", "3")):
            uow.post(posted)
    now += SWEEP_AFTER_S + 1
    [(row, why)] = transactions.outbox.sweep()
    assert (row.id, why) == ("2", FAILED)
    assert {"1", "3"} <= set(carrier.sent)
    with store.read() as uow:
        assert [outbox_row.id for outbox_row in uow.outbox.where()] == ["2"]


def test_a_commit_is_not_undone_by_a_message_that_cannot_be_sent() -> None:
    store = MemoryStore(clock=lambda: 100.0)
    transactions = Transactions(store, Picky())
    transactions.run(lambda uow: uow.post(outgoing("x" * 300, "2")))
    with store.read() as uow:
        assert [outbox_row.id for outbox_row in uow.outbox.where()] == ["2"]
