"""What only SQLite can do wrong, and that it finds by index what is asked for often."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from conductor.store.ports import UnitOfWork
from conductor.store.sql import SqlStore
from models.errors import Broken, Conflict, Unreachable
from tests.contracts.store import records


@pytest.fixture
def store(sqlite_url: str) -> Iterator[SqlStore]:
    opened = SqlStore(sqlite_url, wait_s=0.2)
    yield opened
    opened.close()


def path_of(url: str) -> str:
    return url.removeprefix("sqlite:///")


def test_a_writer_in_another_process_is_waited_for_and_then_a_conflict(
    store: SqlStore, sqlite_url: str
) -> None:
    def write() -> None:
        with store.begin() as uow:
            uow.hosts.add(records.a_host())

    with closing(sqlite3.connect(path_of(sqlite_url), isolation_level=None)) as foreign:
        foreign.execute("BEGIN IMMEDIATE")
        with pytest.raises(Conflict) as caught:
            write()
        foreign.execute("ROLLBACK")
    assert caught.value.code == "database_busy"
    write()
    with store.read() as uow:
        assert uow.hosts.count() == 1


def test_readers_and_writers_use_the_log_and_leave_the_disk_alone(sqlite_url: str) -> None:
    store = SqlStore(sqlite_url)
    with store.begin() as uow:
        uow.hosts.add(records.a_host())
    with closing(sqlite3.connect(path_of(sqlite_url))) as foreign:
        assert foreign.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


def test_a_file_that_cannot_be_opened_is_unreachable(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/no/such/folder.db")
    for block in (store.begin, store.read):
        with pytest.raises(Unreachable) as caught, block():
            pass
        assert caught.value.code == "database_unreachable"


def test_a_file_that_is_no_database_is_broken(tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("not a database, by far " * 100)
    with pytest.raises(Broken) as caught, SqlStore(f"sqlite:///{path}").begin():
        pass
    assert caught.value.code == "database_damaged"


def test_a_database_without_tables_asks_for_an_upgrade(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/new.db")
    with pytest.raises(Broken) as caught, store.begin() as uow:
        uow.hosts.get("h-1")
    assert caught.value.code == "database_schema"
    assert "conductor db upgrade" in caught.value.message
    store.close()


def test_one_connection_writes_for_all_threads(store: SqlStore) -> None:
    def write(name: str) -> None:
        with store.begin() as uow:
            uow.hosts.add(records.a_host(name))

    for name in "abc":
        thread = threading.Thread(target=write, args=(name,))
        thread.start()
        thread.join()
    with store.read() as uow:
        assert uow.hosts.count() == 3


QUESTIONS = {
    "operations.overdue": lambda uow: uow.operations.overdue(1.0, 5),
    "operations.drop_ended_before": lambda uow: uow.operations.drop_ended_before(1.0, 5),
    "operations by instance": lambda uow: uow.operations.where(instance_id="i"),
    "operations by parent": lambda uow: uow.operations.where(parent_id="p"),
    "operations by state": lambda uow: uow.operations.where(state="RUNNING"),
    "oldest operations": lambda uow: uow.operations.where(limit=1),
    "instances by host": lambda uow: uow.instances.where(host="h"),
    "instances by project": lambda uow: uow.instances.where(project_id="p"),
    "instances by group": lambda uow: uow.instances.where(group="g"),
    "instances by state": lambda uow: uow.instances.where(state="active"),
    "instances.lock_many": lambda uow: uow.instances.lock_many(["a", "b"]),
    "instances.usage": lambda uow: uow.instances.usage("p"),
    "instances.hosts_of_group": lambda uow: uow.instances.hosts_of_group("g"),
    "instances.drop_deleted_before": lambda uow: uow.instances.drop_deleted_before(1.0, 5),
    "hosts.save_if": lambda uow: uow.hosts.save_if(records.a_host(), 1),
    "allocations by consumer": lambda uow: uow.allocations.where(consumer_id="c"),
    "allocations by host": lambda uow: uow.allocations.where(host="h"),
    "events by operation": lambda uow: uow.events.where(operation_id="o"),
    "decisions by instance": lambda uow: uow.decisions.where(instance_id="i"),
    "outbox.older_than": lambda uow: uow.outbox.older_than(1.0, 5),
    "outbox.drop_many": lambda uow: uow.outbox.drop_many(["m"]),
    "dead_letters.drop_before": lambda uow: uow.dead_letters.drop_before(1.0, 5),
    "catalogue by kind": lambda uow: uow.catalogue.where(kind="flavor"),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_asked_often_walks_no_table(
    store: SqlStore, sqlite_url: str, question: str
) -> None:
    with closing(sqlite3.connect(path_of(sqlite_url))) as foreign:
        plans = [
            row[3]
            for statement, parameters in _statements_of(store, QUESTIONS[question])
            for row in foreign.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
        ]
    assert plans
    walks = [plan for plan in plans if plan.startswith("SCAN") and "INDEX" not in plan]
    assert walks == []


def _statements_of(
    store: SqlStore, ask: Callable[[UnitOfWork], object]
) -> list[tuple[str, tuple[Any, ...]]]:
    """Return the statements, with their parameters, that a question is made of."""
    asked: list[tuple[str, tuple[Any, ...]]] = []

    def note(*call: Any) -> None:
        _connection, _cursor, statement, parameters, _context, many = call
        if not statement.startswith(("BEGIN", "SAVEPOINT", "RELEASE")):
            asked.append((statement, parameters[0] if many else parameters))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        with store.begin() as uow:
            ask(uow)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    return asked
