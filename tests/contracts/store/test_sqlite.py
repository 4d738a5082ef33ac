"""What only SQLite can do wrong, and that it finds by index what is asked for often."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from conductor.store.sql.sql_store import SqlStore
from models.errors import Unreachable
from models.tables.database_errors import translated
from tests.contracts.store import records
from tests.contracts.store.questions import QUESTIONS, statements_of


@pytest.fixture
def store(sqlite_url: str) -> Iterator[SqlStore]:
    opened = SqlStore(sqlite_url, wait_s=0.2)
    yield opened
    opened.close()


def path_of(url: str) -> str:
    return url.removeprefix("sqlite:///")


def test_a_writer_in_another_process_is_waited_for_and_then_there_is_no_answer(
    store: SqlStore, sqlite_url: str
) -> None:
    def write() -> None:
        with store.begin() as uow:
            uow.hosts.add(records.a_host())

    with closing(sqlite3.connect(path_of(sqlite_url), isolation_level=None)) as foreign:
        foreign.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unreachable) as caught:
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


def test_a_file_that_is_no_database_is_unreachable(tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("not a database, by far " * 100)
    with pytest.raises(Unreachable) as caught, SqlStore(f"sqlite:///{path}").begin():
        pass
    assert caught.value.code == "database_damaged"


@pytest.mark.parametrize(
    ("pragma", "code"),
    [("max_page_count = 1", "database_unreachable"), ("query_only = ON", "database_unreachable")],
)
def test_a_disk_that_is_full_or_read_only_is_unreachable(
    sqlite_url: str, pragma: str, code: str
) -> None:
    with closing(sqlite3.connect(path_of(sqlite_url), isolation_level=None)) as connection:
        connection.execute(f"PRAGMA {pragma}")
        with pytest.raises(Unreachable) as caught, translated():
            connection.execute("CREATE TABLE large AS SELECT zeroblob(1000000) AS bytes")
    assert caught.value.code == code


def test_tables_of_another_release_ask_for_an_upgrade(store: SqlStore, sqlite_url: str) -> None:
    with closing(sqlite3.connect(path_of(sqlite_url), isolation_level=None)) as foreign:
        foreign.execute("ALTER TABLE events RENAME COLUMN detail TO details")
    with pytest.raises(Unreachable) as caught, store.begin() as uow:
        uow.events.add(records.an_event())
    assert caught.value.code == "database_schema"


def test_a_statement_that_is_wrong_is_a_defect_of_ours(sqlite_url: str) -> None:
    with closing(sqlite3.connect(path_of(sqlite_url))) as connection:
        with pytest.raises(sqlite3.Error), translated():
            connection.execute("SELEC 1")
        with pytest.raises(sqlite3.IntegrityError), translated():
            connection.execute("INSERT INTO heartbeats (name) VALUES (NULL)")


def test_a_database_without_tables_asks_for_an_upgrade(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/new.db")
    with pytest.raises(Unreachable) as caught, store.begin() as uow:
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


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_asked_often_walks_no_table(
    store: SqlStore, sqlite_url: str, question: str
) -> None:
    with closing(sqlite3.connect(path_of(sqlite_url))) as foreign:
        plans = [
            row[3]
            for statement, _ in statements_of(store, QUESTIONS[question])
            for row in foreign.execute(f"EXPLAIN QUERY PLAN {statement}")
        ]
    assert plans
    walks = [plan for plan in plans if plan.startswith("SCAN") and "INDEX" not in plan]
    assert walks == []
