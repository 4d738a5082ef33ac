"""What a unit of work promises: all or nothing, letters included, and one consistent view."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import psycopg
import pytest

from conductor.store import Store, UnitOfWork
from conductor.store.memory.memory_store import MemoryStore
from conductor.store.open_store import open_store
from conductor.store.outbox_rows import message_of
from conductor.store.sql.sql_store import SqlStore
from models.errors import Broken, Conflict, Rejected
from models.messages.internal import OutgoingMessage
from tests.contracts.store import records
from tests.contracts.store.conftest import Clock, Opener

T = TypeVar("T")

MESSAGE = OutgoingMessage(
    "compute_a", "compute.spawn", {"a": [1]}, "m-1", "op-0", "op-1", "spawn i-1 on a"
)


class Mishap(Exception):
    """Something that goes wrong inside a transaction."""


@contextmanager
def spoiled(block: AbstractContextManager[T]) -> Iterator[T]:
    """Let a block do its work and fail at its very end."""
    with suppress(Mishap), block as entered:
        yield entered
        raise Mishap


def test_what_a_transaction_wrote_is_there_for_everybody_after_it(opener: Opener) -> None:
    with opener().begin() as uow:
        uow.operations.add(records.an_operation())
    with opener().read() as uow:
        assert uow.operations.count() == 1


def test_an_error_undoes_everything(store: Store) -> None:
    kept = records.a_host("kept")
    with store.begin() as uow:
        uow.hosts.add(kept)
    with spoiled(store.begin()) as uow:
        uow.hosts.save(replace(kept, version=2))
        uow.hosts.add(records.a_host("new"))
        uow.events.add(records.an_event())
        uow.post(MESSAGE)
    with store.read() as uow:
        assert uow.hosts.where() == [kept]
        assert uow.events.count() == uow.outbox.count() == 0


def test_an_error_brings_back_what_was_dropped(store: Store) -> None:
    with store.begin() as uow:
        uow.instances.add(records.an_instance(host="h-1"))
    with spoiled(store.begin()) as uow:
        uow.instances.drop("i-1")
    with store.read() as uow:
        assert uow.instances.where(host="h-1") == [records.an_instance(host="h-1")]


def test_hardware_that_was_written_in_vain_is_written_again(opener: Opener) -> None:
    store = opener()
    with spoiled(store.begin()) as uow:
        uow.hosts.add(records.a_host())
    with store.begin() as uow:
        with spoiled(uow.savepoint()):
            uow.hosts.add(records.a_host())
        uow.hosts.add(records.a_host())
    with opener().read() as uow:
        assert uow.hosts.get("h-1") == records.a_host()


@pytest.mark.parametrize("block", ["transaction", "savepoint"])
def test_an_error_passes_as_it_is(store: Store, block: str) -> None:
    def fail() -> None:
        with store.begin() as uow, uow.savepoint() if block == "savepoint" else nullcontext():
            raise Mishap(block)

    with pytest.raises(Mishap, match=block):
        fail()


def test_a_savepoint_undoes_its_block_and_lets_the_error_pass(store: Store) -> None:
    before = records.an_operation()
    with store.begin() as uow:
        uow.operations.add(before)
        uow.post(MESSAGE)
        with spoiled(uow.savepoint()):
            uow.operations.save(replace(before, step="later", data={"x": 1}))
            uow.operations.add(records.an_operation("op-2"))
            uow.post(replace(MESSAGE, id="m-2"))
        assert uow.operations.where() == [before]
        assert uow.posted == (MESSAGE,)
        after = replace(before, step="other")
        uow.operations.save(after)
    with store.read() as uow:
        assert uow.operations.where() == [after]
        assert [row.id for row in uow.outbox.where()] == ["m-1"]


def test_a_savepoint_without_an_error_keeps_its_block(store: Store) -> None:
    with store.begin() as uow:
        with uow.savepoint():
            uow.operations.add(records.an_operation())
            uow.post(MESSAGE)
        assert uow.posted == (MESSAGE,)
    with store.read() as uow:
        assert uow.operations.count() == uow.outbox.count() == 1


def test_savepoints_nest(store: Store) -> None:
    with store.begin() as uow:
        with uow.savepoint():
            uow.operations.add(records.an_operation("outer"))
            with spoiled(uow.savepoint()):
                uow.operations.add(records.an_operation("inner"))
        with spoiled(uow.savepoint()), uow.savepoint():
            uow.operations.add(records.an_operation("lost with what is around it"))
    with store.read() as uow:
        assert [operation.id for operation in uow.operations.where()] == ["outer"]


def test_a_conflict_may_pass_through_a_savepoint(store: Store) -> None:
    with store.begin() as uow:
        uow.operations.add(records.an_operation())
        with suppress(Conflict), uow.savepoint():
            uow.hosts.add(records.a_host())
            uow.operations.add(records.an_operation())
        uow.operations.add(records.an_operation("op-2"))
    with store.read() as uow:
        assert uow.operations.count() == 2
        assert uow.hosts.count() == 0


def test_a_posted_message_waits_in_the_outbox_unchanged(store: Store, clock: Clock) -> None:
    clock.now = 77.5
    with store.begin() as uow:
        assert uow.posted == ()
        uow.post(MESSAGE)
        uow.post(replace(MESSAGE, id="m-2"))
        assert [outgoing.id for outgoing in uow.posted] == ["m-1", "m-2"]
    with store.read() as uow:
        row = uow.outbox.get("m-1")
        assert row is not None
        assert row.created_at == 77.5
        assert message_of(row) == MESSAGE


def test_a_message_that_is_still_waiting_can_be_posted_again(store: Store, clock: Clock) -> None:
    with store.begin() as uow:
        uow.post(MESSAGE)
    clock.now += 10
    with store.begin() as uow:
        uow.post(MESSAGE)
        assert uow.posted == (MESSAGE,)
    with store.read() as uow:
        assert [row.created_at for row in uow.outbox.where()] == [clock.now]


def test_now_is_the_clock_at_the_beginning(store: Store, clock: Clock) -> None:
    clock.now = 5.0
    with store.begin() as uow:
        clock.now = 6.0
        assert uow.now == 5.0
    with store.read() as uow:
        assert uow.now == 6.0


def test_a_reader_sees_one_state_while_others_write(opener: Opener) -> None:
    store, other = opener(), opener()
    with store.begin() as uow:
        uow.instances.add(records.an_instance("a", host="h-1"))
        uow.instances.add(records.an_instance("b", host="h-1"))
        uow.operations.add(records.an_operation("op-1", wake_at=1.0))
    with store.read() as reader:
        before = reader.instances.where(host="h-1")
        with other.begin() as writer:
            writer.instances.save(records.an_instance("a", host="h-2"))
            writer.instances.drop("b")
            writer.instances.add(records.an_instance("c", host="h-1"))
            writer.operations.save(records.an_operation("op-1", wake_at=None))
            writer.operations.add(records.an_operation("op-2", wake_at=0.5))
        assert reader.instances.where(host="h-1") == before
        assert reader.instances.where(host="h-2") == []
        assert reader.instances.get("c") is None
        assert reader.instances.count() == 2
        assert reader.operations.overdue(2.0, 10) == ["op-1"]
        assert reader.instances.usage("p-1")["instances"] == 2
    with store.read() as reader:
        assert [instance.id for instance in reader.instances.where(host="h-1")] == ["c"]
        assert reader.operations.overdue(2.0, 10) == ["op-2"]


def test_a_reader_that_begins_beside_a_writer_sees_nothing_unfinished(opener: Opener) -> None:
    store, other = opener(), opener()
    with store.begin() as uow:
        uow.instances.add(records.an_instance("a"))
    with store.begin() as writer:
        writer.instances.drop("a")
        writer.instances.add(records.an_instance("b"))
        with other.read() as reader:
            assert [instance.id for instance in reader.instances.where()] == ["a"]
            writer.instances.add(records.an_instance("c"))
            assert reader.instances.get("a") is not None
            assert reader.instances.get("c") is None


def test_a_reader_does_not_see_what_is_rolled_back(opener: Opener) -> None:
    store, other = opener(), opener()
    with other.read() as reader:
        assert reader.hosts.count() == 0
        with spoiled(store.begin()) as writer:
            writer.hosts.add(records.a_host())
        assert reader.hosts.count() == 0
    with store.read() as reader:
        assert reader.hosts.count() == 0


def test_a_reader_cannot_write(store: Store) -> None:
    with store.begin() as uow:
        uow.hosts.add(records.a_host())
    with store.read() as uow:
        writes = (
            lambda: uow.hosts.add(records.a_host("new")),
            lambda: uow.hosts.add_many([records.a_host("new")]),
            lambda: uow.hosts.save(records.a_host(version=2)),
            lambda: uow.hosts.save_if(records.a_host(version=2), 1),
            lambda: uow.hosts.put(records.a_host(version=2)),
            lambda: uow.hosts.drop("h-1"),
            lambda: uow.hosts.lock("h-1"),
            lambda: uow.instances.lock_many(["i-1"]),
            lambda: uow.outbox.drop_many(["m-1"]),
            lambda: uow.post(MESSAGE),
        )
        for write in writes:
            with pytest.raises(Broken) as caught:
                write()
            assert caught.value.code == "transaction_reads"
        assert uow.hosts.where() == [records.a_host()]


def test_a_transaction_cannot_be_used_after_its_end(store: Store) -> None:
    with store.begin() as writer:
        writer.hosts.add(records.a_host())
    with store.read() as reader:
        reader.hosts.get("h-1")
    for uow in (writer, reader):
        with pytest.raises(Broken) as caught:
            uow.hosts.get("h-1")
        assert caught.value.code == "transaction_over"
    with pytest.raises(Broken):
        writer.hosts.put(records.a_host())


def test_a_transaction_inside_another_is_broken_rather_than_stuck(store: Store) -> None:
    with store.begin() as uow:
        with pytest.raises(Broken) as caught, store.begin():
            pass
        uow.hosts.add(records.a_host())
    assert caught.value.code == "transaction_nested"
    with store.begin() as uow:
        assert uow.hosts.count() == 1


def test_a_store_can_be_closed_twice(store: Store) -> None:
    with store.begin() as uow:
        uow.hosts.add(records.a_host())
    store.close()
    store.close()


def test_a_url_opens_its_store(tmp_path: Path, clock: Clock) -> None:
    assert isinstance(open_store("memory://", clock), MemoryStore)
    assert isinstance(open_store(f"sqlite:///{tmp_path}/x.db", clock), SqlStore)
    assert isinstance(open_store("postgresql://ann:secret@nowhere.invalid/x", clock), SqlStore)


@pytest.mark.parametrize(
    ("url", "shown", "rule"),
    [
        ("mysql://ann:secret@db/x", "mysql://ann:***@db/x", "must begin with"),
        ("sqlite://", "sqlite://", "needs a file"),
        ("sqlite:///:memory:", "sqlite:///:memory:", "needs a file"),
        ("", "…", "is no URL"),
        ("no url at all, secret", "…", "is no URL"),
        ("postgresql://ann:secret@host:port/x", "postgresql://…", "is no URL"),
    ],
)
def test_another_url_is_rejected_by_field_value_and_rule(url: str, shown: str, rule: str) -> None:
    with pytest.raises(Rejected) as caught:
        open_store(url)
    error = caught.value
    assert (error.code, error.key) == ("database_url_invalid", "database_url")
    assert shown in error.message
    assert rule in error.message
    assert "secret" not in error.message


def test_what_is_written_last_is_there_after_the_commit_and_after_going_back_not(
    store: Store,
) -> None:
    with store.begin() as uow:
        uow.operations.add(records.an_operation("a"))
    with store.begin() as uow:
        known = uow.operations.lock("a")
        assert known is not None
        uow.operations.save(replace(known, step="one"))
        with spoiled(uow.savepoint()):
            uow.operations.save(replace(known, step="two"))
            uow.outbox.put(records.an_outbox_row("never"))
        with uow.savepoint():
            uow.outbox.put(records.an_outbox_row("kept"))
        assert uow.operations.get("a") == replace(known, step="one")
        assert [outbox_row.id for outbox_row in uow.outbox.where()] == ["kept"]
        uow.outbox.put(records.an_outbox_row("last"))
    with store.read() as uow:
        assert {outbox_row.id for outbox_row in uow.outbox.where()} == {"kept", "last"}
        found = uow.operations.get("a")
        assert found is not None
        assert found.step == "one"


def fails_late(uow: UnitOfWork) -> None:
    """Write what only the server, and so only the next answer, can refuse."""
    uow.outbox.put(records.an_outbox_row("good"))
    uow.outbox.put(replace(records.an_outbox_row("bad"), task="a\0b"))


def and_asks(uow: UnitOfWork) -> None:
    fails_late(uow)
    with pytest.raises(psycopg.DataError):
        uow.operations.get("a")
    with pytest.raises(psycopg.DataError):
        uow.outbox.put(records.an_outbox_row("good"))


def and_goes_back(uow: UnitOfWork) -> None:
    """What failed came before the savepoint: going back to that undoes nothing of it."""
    fails_late(uow)
    with suppress(psycopg.Error), uow.savepoint():
        uow.operations.add(records.an_operation("a"))
    uow.operations.add(records.an_operation("b"))


@pytest.mark.parametrize("work", [fails_late, and_asks, and_goes_back])
def test_a_write_that_fails_late_fails_the_transaction_and_leaves_nothing(
    postgresql_url: str, work: Callable[[UnitOfWork], None]
) -> None:
    def attempt(store: Store) -> None:
        with store.begin() as uow:
            work(uow)

    with closing(SqlStore(postgresql_url)) as store:
        with pytest.raises(psycopg.Error):
            attempt(store)
        with store.read() as uow:
            assert uow.outbox.where() == []
            assert uow.operations.count() == 0
