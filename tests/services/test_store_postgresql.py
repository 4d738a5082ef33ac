"""What only a server can do to the store: deadlocks, timeouts, lost connections."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from conductor.store import Store, UnitOfWork
from conductor.store.sql.sql_store import SqlStore
from models.errors import Conflict, Unreachable
from models.tables.schema_upgrade import upgrade
from tests.contracts.store import records
from tests.contracts.store.questions import QUESTIONS, statements_of
from tests.limits import Limit

PATIENCE_S = 30
ASKED = {**QUESTIONS, "hosts.changes": lambda uow: uow.hosts.changes(10**9)}

Administrator = psycopg.Connection[Any]


@pytest.fixture(scope="module")
def url(fresh_database: Callable[[], str]) -> str:
    upgraded = fresh_database()
    upgrade(upgraded)
    return upgraded


@pytest.fixture
def store(url: str) -> Iterator[SqlStore]:
    opened = SqlStore(url, wait_s=2.0)
    with opened.begin() as uow:
        uow.operations.put(records.an_operation("a"))
        uow.operations.put(records.an_operation("b"))
    yield opened
    opened.close()


@pytest.fixture
def hasty(url: str) -> Iterator[SqlStore]:
    """A store on the same database that waits for nobody."""
    opened = SqlStore(url, wait_s=0.1)
    yield opened
    opened.close()


@pytest.fixture
def administrator(url: str) -> Iterator[Administrator]:
    plain = url.replace("postgresql+psycopg://", "postgresql://")
    with psycopg.connect(plain, autocommit=True) as connection:
        yield connection


def do_to_the_others(administrator: Administrator, function: str) -> None:
    """Call a function of the server on every other session of this database."""
    administrator.execute(
        f"SELECT {function}(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


def step_of(store: Store, operation_id: str) -> str:
    with store.read() as uow:
        operation = uow.operations.get(operation_id)
        assert operation is not None
        return operation.step


def test_a_lock_gives_what_was_committed_since_the_first_look(
    store: SqlStore, hasty: SqlStore
) -> None:
    with store.begin() as uow:
        first = uow.operations.get("a")
        with hasty.begin() as other:
            other.operations.save(records.an_operation("a", step="other", data={"x": 1}))
        locked = uow.operations.lock("a")
        assert locked == records.an_operation("a", step="other", data={"x": 1})
        assert uow.operations.get("a") == locked
        assert first is not None
        uow.operations.save(replace(first, tries=5))
    with store.read() as uow:
        assert uow.operations.get("a") == records.an_operation("a", tries=5)


def test_saving_what_was_only_looked_at_replaces_the_whole_record(
    store: SqlStore, hasty: SqlStore
) -> None:
    with store.begin() as uow:
        seen = uow.operations.get("a")
        with hasty.begin() as other:
            other.operations.save(records.an_operation("a", step="other", data={"x": 1}))
        assert seen is not None
        uow.operations.save(replace(seen, tries=5))
    with store.read() as uow:
        assert uow.operations.get("a") == records.an_operation("a", tries=5)


def test_of_two_that_lock_crosswise_one_is_told_to_retry(store: SqlStore) -> None:
    both = threading.Barrier(2)
    conflicts = list[str]()

    def lock(first: str, second: str) -> None:
        try:
            with store.begin() as uow:
                uow.operations.lock(first)
                both.wait(PATIENCE_S)
                operation = uow.operations.lock(second)
                assert operation is not None
                uow.operations.save(replace(operation, step="both"))
        except Conflict as conflict:
            conflicts.append(conflict.code)

    with ThreadPoolExecutor(2) as pool:
        for running in (pool.submit(lock, "a", "b"), pool.submit(lock, "b", "a")):
            running.result(PATIENCE_S)
    assert conflicts == ["deadlock"]
    assert "both" in {step_of(store, "a"), step_of(store, "b")}


def test_a_swallowed_error_does_not_pass_for_a_commit(store: SqlStore, hasty: SqlStore) -> None:
    def swallow() -> None:
        with hasty.begin() as uow:
            uow.operations.save(records.an_operation("a", step="lost"))
            with suppress(Unreachable):
                uow.operations.lock("b")
            with pytest.raises(Unreachable):
                uow.operations.get("a")

    with store.begin() as uow:
        uow.operations.lock("b")
        with pytest.raises(Unreachable) as caught:
            swallow()
    assert caught.value.code == "lock_timeout"
    assert step_of(store, "a") == "schedule"


def test_a_savepoint_makes_an_error_harmless(store: SqlStore, hasty: SqlStore) -> None:
    with store.begin() as holder:
        holder.operations.lock("b")
        with hasty.begin() as uow:
            uow.operations.save(records.an_operation("a", step="kept"))
            with suppress(Unreachable), uow.savepoint():
                uow.operations.save(records.an_operation("a", step="lost"))
                uow.operations.lock("b")
            assert uow.operations.where(step="kept", id="a")
    assert step_of(store, "a") == "kept"


def test_a_statement_that_the_server_cancels_is_no_answer(
    store: SqlStore, url: str, administrator: Administrator
) -> None:
    codes = list[str]()

    def wait_for_the_lock() -> None:
        other = SqlStore(url)
        try:
            with other.begin() as uow:
                uow.operations.lock("a")
        except Unreachable as error:
            codes.append(error.code)
        other.close()

    with store.begin() as uow:
        uow.operations.lock("a")
        waiting = threading.Thread(target=wait_for_the_lock)
        waiting.start()
        until(lambda: waits_for_a_lock(administrator))
        do_to_the_others(administrator, "pg_cancel_backend")
        waiting.join(PATIENCE_S)
    assert codes == ["statement_timeout"]


def test_a_connection_lost_inside_a_transaction_is_unreachable(
    store: SqlStore, administrator: Administrator
) -> None:
    def lose(use: Callable[[UnitOfWork], object]) -> None:
        with store.begin() as uow:
            uow.operations.save(records.an_operation("a", step="lost"))
            do_to_the_others(administrator, "pg_terminate_backend")
            use(uow)

    uses: tuple[Callable[[UnitOfWork], object], ...] = (
        lambda uow: uow.operations.get("b"),
        lambda _uow: "the commit is the first to notice",
        lambda uow: uow.savepoint().__enter__(),
    )
    for use in uses:
        with pytest.raises(Unreachable) as caught:
            lose(use)
        assert caught.value.code == "database_unreachable"
        assert step_of(store, "a") == "schedule"


def test_a_connection_lost_inside_a_savepoint_is_unreachable(
    store: SqlStore, administrator: Administrator
) -> None:
    def lose() -> None:
        with store.begin() as uow, uow.savepoint():
            uow.operations.save(records.an_operation("a", step="lost"))
            do_to_the_others(administrator, "pg_terminate_backend")
            uow.operations.get("b")

    with pytest.raises(Unreachable):
        lose()
    assert step_of(store, "a") == "schedule"


def test_connections_lost_while_nobody_used_them_are_replaced(
    store: SqlStore, administrator: Administrator
) -> None:
    step_of(store, "a")
    do_to_the_others(administrator, "pg_terminate_backend")
    with store.begin() as uow:
        uow.operations.save(records.an_operation("a", step="next"))
    assert step_of(store, "a") == "next"


@pytest.mark.parametrize(
    "nowhere",
    [
        "postgresql://postgres@127.0.0.1:1/postgres",
        "postgresql://postgres@no-such-host.invalid/postgres",
    ],
)
def test_a_server_that_is_not_there_is_unreachable(nowhere: str) -> None:
    store = SqlStore(nowhere)
    for block in (store.begin, store.read):
        with pytest.raises(Unreachable) as caught, block() as uow:
            uow.operations.get("a")
        assert caught.value.code == "database_unreachable"
    store.close()


def test_a_database_that_does_not_exist_is_unreachable(url: str) -> None:
    store = SqlStore(f"{url}_not")
    with pytest.raises(Unreachable), store.begin() as uow:
        uow.operations.get("a")


def test_a_database_without_tables_asks_for_an_upgrade(fresh_database: Callable[[], str]) -> None:
    store = SqlStore(fresh_database())
    with pytest.raises(Unreachable) as caught, store.begin() as uow:
        uow.operations.get("a")
    assert caught.value.code == "database_schema"
    assert "conductor db upgrade" in caught.value.message
    store.close()


def test_too_many_at_once_wait_and_then_get_no_answer(url: str) -> None:
    store = SqlStore(url, wait_s=0.1)

    def read_more_and_more(readers: ExitStack) -> None:
        while True:
            readers.enter_context(store.read())

    with ExitStack() as readers, pytest.raises(Unreachable) as caught:
        read_more_and_more(readers)
    assert caught.value.code == "database_busy"
    store.close()


@pytest.mark.parametrize("question", ASKED)
def test_a_question_asked_often_walks_no_table(
    store: SqlStore, administrator: Administrator, question: str
) -> None:
    # So few rows are walked faster than looked up, unless walking is made expensive.
    administrator.execute("SET enable_seqscan = off")
    plans = [
        row[0]
        for statement, parameters in statements_of(store, ASKED[question])
        for row in administrator.execute(f"EXPLAIN {statement}", parameters)
    ]
    assert plans
    assert [plan for plan in plans if "Seq Scan" in plan] == []


def until(holds: Callable[[], bool]) -> None:
    limit = Limit(PATIENCE_S)
    while not holds():
        assert not limit.over
        time.sleep(0.01)


def waits_for_a_lock(administrator: Administrator) -> bool:
    found = administrator.execute(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    ).fetchone()
    return found is not None and found[0] > 0


def test_a_change_that_is_committed_late_is_not_missed(store: SqlStore, hasty: SqlStore) -> None:
    with store.begin() as uow:
        for name in ("late", "early"):
            uow.hosts.put(records.a_host(name))
    with hasty.read() as uow:
        mark = uow.hosts.changes(0).mark or 0
    with store.begin() as uow:
        uow.hosts.save(records.a_host("late", version=2))
        with hasty.begin() as other:
            other.hosts.save(records.a_host("early", version=2))
        with hasty.read() as reading:
            first = reading.hosts.changes(mark)
        # Transactions of others on this server may keep what is old visible, as it was.
        assert first.versions["early"] == 2
        assert first.versions.get("late") in (None, 1)
    with hasty.read() as reading:
        second = reading.hosts.changes(first.mark or 0)
        assert second.versions["late"] == 2


def test_changes_of_a_restored_database_that_lie_ahead_say_nothing(
    store: SqlStore, administrator: Administrator
) -> None:
    with store.begin() as uow:
        uow.hosts.put(records.a_host("restored"))
    administrator.execute("ALTER TABLE hosts DISABLE TRIGGER note_change")
    administrator.execute("UPDATE hosts SET changed = 9000000000000 WHERE name = 'restored'")
    administrator.execute("ALTER TABLE hosts ENABLE TRIGGER note_change")
    with store.read() as uow:
        everything = uow.hosts.changes(0)
        assert "restored" in everything.versions
        mark = everything.mark or 0
        assert "restored" not in uow.hosts.changes(mark).versions
    with store.begin() as uow:
        uow.hosts.save(records.a_host("restored", version=2))
    with store.read() as uow:
        assert uow.hosts.changes(mark).versions["restored"] == 2
