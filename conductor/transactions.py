"""Runs work in transactions: retried after a conflict, its messages sent after the commit."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Protocol, TypeVar

from tenacity import (
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from conductor.outbox_relay import OutboxRelay
from conductor.store import DeadLetter, Store, UnitOfWork
from models.errors import Conflict
from models.messages.carrier import Carrier

R = TypeVar("R")


class Observer(Protocol):
    """Sees what one transaction changes, and is called once that is committed.

    A transaction that is run again calls `before` and `after` again; only the last ones count.
    """

    def before(self, uow: UnitOfWork) -> None:
        """Look at what there is before the work, in its transaction."""

    def after(self, uow: UnitOfWork) -> None:
        """Look at what the work has changed, in its transaction."""

    def committed(self) -> None:
        """Do what follows; called after the messages of the transaction were sent."""


class Transactions:
    """Runs work in transactions and sends the messages that it posts; `outbox` is their relay."""

    def __init__(
        self,
        store: Store,
        carrier: Carrier,
        on_unroutable: Callable[[Collection[str]], None] = lambda _: None,
    ) -> None:
        """Send by `carrier`; queues that no message reaches go to `on_unroutable` at times."""
        self._store = store
        self.outbox = OutboxRelay(store, carrier, on_unroutable)

    def run(self, work: Callable[[UnitOfWork], R], observer: Observer | None = None) -> R:
        """Run `work` in one transaction, send its messages, and tell the observer.

        After a `Conflict` all of it is run again, at most 12 times; the last one is raised.
        """
        for attempt in Retrying(
            retry=retry_if_exception_type(Conflict),
            stop=stop_after_attempt(12),
            wait=wait_random_exponential(multiplier=0.01, max=1.0),
            reraise=True,
        ):
            with attempt:
                with self.outbox.sent_rows() as sent, self._store.begin() as uow:
                    result = _observed(work, uow, observer)
                    if sent:
                        uow.outbox.drop_many(sent)
                self.outbox.publish(list(uow.posted))
        if observer is not None:
            observer.committed()
        return result

    def keep_dead_letter(self, outgoing: DeadLetter) -> None:
        """Keep a message that could not be handled; the same id again changes nothing."""
        self.run(lambda uow: kept_once(uow, outgoing))


def _observed(work: Callable[[UnitOfWork], R], uow: UnitOfWork, observer: Observer | None) -> R:
    if observer is None:
        return work(uow)
    observer.before(uow)
    result = work(uow)
    observer.after(uow)
    return result


def kept_once(uow: UnitOfWork, outgoing: DeadLetter) -> bool:
    """Keep a message that could not be handled, and say whether it was not kept before."""
    if uow.dead_letters.get(outgoing.id) is not None:
        return False
    # As the others are, by the clock that all processes share: they are kept for so long.
    uow.dead_letters.add(replace(outgoing, at=uow.now))
    return True
