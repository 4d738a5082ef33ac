"""What goes wrong at a PostgreSQL server stays there: no connection, and no message, keeps it."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from psycopg import sql

from conductor.store import UnitOfWork
from conductor.store.sql.sql_store import SqlStore
from models.errors import Unreachable, is_of_the_store
from models.tables.schema_upgrade import upgrade
from tests.contracts.store import records

OFTEN = 8
"""More often than the driver runs a statement before it prepares it."""

NOT_OURS = {
    "08006": "database_unreachable",
    "0A000": "database_unreachable",
    "25006": "database_unreachable",
    "25P03": "transaction_timeout",
    "26000": "database_unreachable",
    "28000": "database_unreachable",
    "3D000": "database_unreachable",
    "3F000": "database_schema",
    "42501": "database_unreachable",
    "42703": "database_schema",
    "42883": "database_schema",
    "42P01": "database_schema",
    "53100": "database_unreachable",
    "53200": "database_unreachable",
    "53300": "database_unreachable",
    "55000": "database_unreachable",
    "55006": "database_unreachable",
    "55P03": "lock_timeout",
    "57014": "statement_timeout",
    "57P01": "database_unreachable",
    "57P03": "database_unreachable",
    "58030": "database_unreachable",
    "99ZZZ": "database_unreachable",
    "XX000": "database_unreachable",
    "XX001": "database_unreachable",
}
"""What no message is to blame for: full, read-only, forbidden, damaged, too slow, other tables."""

OURS = ("22003", "22P05", "23502", "23505", "23514", "42601", "54000", "P0001")

Administrator = psycopg.Connection[Any]
Spoil = Callable[[SqlStore, Administrator], None]


@pytest.fixture(scope="module")
def url(fresh_database: Callable[[], str]) -> str:
    upgraded = fresh_database()
    upgrade(upgraded)
    return upgraded


@pytest.fixture
def store(url: str) -> Iterator[SqlStore]:
    opened = SqlStore(url, wait_s=0.1)
    yield opened
    opened.close()


@pytest.fixture
def administrator(url: str) -> Iterator[Administrator]:
    plain = url.replace("postgresql+psycopg://", "postgresql://")
    with psycopg.connect(plain, autocommit=True) as connection:
        yield connection
        let_events_be(connection)


def look(uow: UnitOfWork) -> None:
    uow.operations.get("x")


def tell(uow: UnitOfWork) -> None:
    """Write what travels with the next statement, and see that next one."""
    uow.events.add(records.an_event())
    look(uow)


def roll_back(store: SqlStore) -> None:
    with suppress(KeyError), store.begin() as uow:
        look(uow)
        raise KeyError


def let_events_fail(administrator: Administrator, sqlstate: str) -> None:
    """Let the server itself answer every event with this SQLSTATE."""
    administrator.execute(
        "CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN RAISE EXCEPTION 'as a test wants it' USING ERRCODE = '{sqlstate}'; END $$"
    )
    administrator.execute("CREATE TRIGGER fail BEFORE INSERT ON events EXECUTE FUNCTION fail()")


def let_events_be(administrator: Administrator) -> None:
    administrator.execute("DROP TRIGGER IF EXISTS fail ON events")


def wait_for_a_name_too_long(store: SqlStore, administrator: Administrator) -> None:
    with administrator.transaction():
        administrator.execute("SELECT pg_advisory_xact_lock(hashtextextended('n', 0))")
        with store.begin() as uow:
            uow.lock("n")
            look(uow)


def wait_for_a_table_too_long(store: SqlStore, administrator: Administrator) -> None:
    with administrator.transaction():
        administrator.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
        with store.begin() as uow:
            tell(uow)


def fill_the_disk(store: SqlStore, administrator: Administrator) -> None:
    let_events_fail(administrator, "53100")
    try:
        with store.begin() as uow:
            tell(uow)
    finally:
        let_events_be(administrator)


def write_what_no_column_can_hold(store: SqlStore, _: Administrator) -> None:
    with store.begin() as uow:
        uow.instances.put(records.an_instance("x", fence=2**80))
        tell(uow)


def fail_before_a_savepoint_and_go_on(store: SqlStore, administrator: Administrator) -> None:
    let_events_fail(administrator, "53100")
    try:
        with store.begin() as uow:
            look(uow)
            with suppress(Unreachable), uow.savepoint():
                tell(uow)
            look(uow)
            raise Unreachable("as_the_others", "gone on, and given up")
    finally:
        let_events_be(administrator)


@pytest.mark.parametrize("already_run", range(OFTEN))
@pytest.mark.parametrize(
    "spoil",
    [
        wait_for_a_name_too_long,
        wait_for_a_table_too_long,
        fill_the_disk,
        write_what_no_column_can_hold,
        fail_before_a_savepoint_and_go_on,
    ],
)
def test_what_failed_ahead_of_a_statement_spoils_no_later_transaction(
    store: SqlStore, administrator: Administrator, spoil: Spoil, already_run: int
) -> None:
    roll_back(store)
    for _ in range(already_run):
        with store.begin() as uow:
            look(uow)
    with pytest.raises((Unreachable, psycopg.Error)):
        spoil(store, administrator)
    for _ in range(OFTEN):
        with store.begin() as uow:
            tell(uow)
        with store.read() as uow:
            look(uow)


@pytest.mark.parametrize("sqlstate", NOT_OURS)
def test_what_no_message_is_to_blame_for_is_unreachable(
    store: SqlStore, administrator: Administrator, sqlstate: str
) -> None:
    let_events_fail(administrator, sqlstate)
    for work in (tell, lambda uow: uow.events.add(records.an_event())):
        with pytest.raises(Unreachable) as caught, store.begin() as uow:
            work(uow)
        assert caught.value.code == NOT_OURS[sqlstate]
        assert is_of_the_store(caught.value)
    let_events_be(administrator)
    with store.begin() as uow:
        tell(uow)


@pytest.mark.parametrize("sqlstate", OURS)
def test_what_a_statement_itself_is_to_blame_for_is_a_defect_of_ours(
    store: SqlStore, administrator: Administrator, sqlstate: str
) -> None:
    let_events_fail(administrator, sqlstate)
    with pytest.raises(psycopg.Error) as caught, store.begin() as uow:
        tell(uow)
    assert caught.value.sqlstate == sqlstate


def test_sessions_that_a_demoted_primary_left_behind_are_replaced(
    url: str, administrator: Administrator
) -> None:
    database = url.rpartition("/")[2]
    name = sql.Identifier(database)
    administrator.execute(
        sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name)
    )
    store = SqlStore(url)
    with store.read() as first, store.read() as second:
        look(first)
        look(second)
    administrator.execute(
        sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(name)
    )
    with pytest.raises(Unreachable) as caught, store.begin() as uow:
        tell(uow)
    assert caught.value.data == {"sqlstate": "25006"}
    # Of the two that are open, neither is asked again.
    for _ in range(2):
        with store.begin() as uow:
            tell(uow)
    store.close()


def test_statements_that_a_pooler_forgot_are_prepared_again(
    url: str, administrator: Administrator
) -> None:
    store = SqlStore(url)
    for _ in range(OFTEN):
        with store.begin() as uow:
            look(uow)
    with store.begin() as uow:
        uow.events.add(records.an_event())
    administrator.execute(
        "CREATE FUNCTION forget() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN EXECUTE 'DEALLOCATE ALL'; RETURN NEW; END $$"
    )
    administrator.execute("CREATE TRIGGER forget BEFORE INSERT ON events EXECUTE FUNCTION forget()")
    with suppress(Unreachable), store.begin() as uow:
        tell(uow)
    administrator.execute("DROP TRIGGER forget ON events")
    for _ in range(2):
        with suppress(Unreachable), store.begin() as uow:
            tell(uow)
    with store.begin() as uow:
        tell(uow)
    store.close()
