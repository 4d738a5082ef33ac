"""What one process does with a call whose store is away."""

from __future__ import annotations

import threading

import pytest

from models.errors import Broken, Conflict, Unreachable
from tasks.consuming.store_retry import GivenBackError, StoreRetry


class Store:
    """Fails as often as it is told to, then answers."""

    def __init__(self, error: Exception, failures: int) -> None:
        self._error = error
        self.calls = 0
        self._failures = failures

    def call(self) -> str:
        self.calls += 1
        if self.calls <= self._failures:
            raise self._error
        return "done"


AWAY = Unreachable("database_unreachable", "the database does not answer")
MOVED = Conflict("version", "somebody moved first")


@pytest.mark.parametrize("error", [AWAY, MOVED])
def test_a_call_is_repeated_until_it_succeeds(error: Exception) -> None:
    store = Store(error, failures=3)
    assert StoreRetry().keep_trying(store.call) == "done"
    assert store.calls == 4


def test_a_call_that_fails_otherwise_is_not_repeated() -> None:
    store = Store(Broken("invariant", "broken"), failures=9)
    with pytest.raises(Broken):
        StoreRetry().keep_trying(store.call)
    assert store.calls == 1


def test_an_endless_conflict_is_given_up() -> None:
    store = Store(MOVED, failures=1_000)
    with pytest.raises(Conflict):
        StoreRetry(most_wait_s=0.01).keep_trying(store.call)
    assert store.calls == 21


def test_stopping_ends_a_call_that_waits() -> None:
    store_retry = StoreRetry()
    threading.Timer(0.1, store_retry.stop).start()
    with pytest.raises(GivenBackError):
        store_retry.keep_trying(Store(AWAY, failures=1_000_000).call)


def test_patience_ends_after_its_time_and_returns_with_the_first_success() -> None:
    store_retry = StoreRetry(hold_s=0.0)
    assert not store_retry.is_over()
    waited = threading.Event()
    back = threading.Event()

    def call() -> None:
        waited.set()
        if not back.is_set():
            raise AWAY

    caller = threading.Thread(target=store_retry.keep_trying, args=(call,))
    caller.start()
    waited.wait(5)
    while not store_retry.is_over():
        pass
    back.set()
    caller.join(10)
    assert not store_retry.is_over()


def test_a_conflict_says_nothing_about_the_store() -> None:
    store_retry = StoreRetry(hold_s=0.0)
    store_retry.keep_trying(Store(MOVED, failures=2).call)
    assert not store_retry.is_over()
