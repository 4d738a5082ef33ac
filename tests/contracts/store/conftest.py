"""Every adapter, empty, with a clock that stands where it is put."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from conductor.store import Store
from conductor.store.memory.memory_store import MemoryStore
from conductor.store.sql.sql_store import SqlStore
from models.tables.schema import CELLS, METADATA
from models.tables.schema_upgrade import upgrade

ADAPTERS = ("memory", "sqlite", "postgresql")
WAIT_S = 0.3

Opener = Callable[[], Store]


class Clock:
    """Unix time as a test wants it."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def empty_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "empty.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def sqlite_url(empty_sqlite: Path, tmp_path: Path) -> str:
    """URL of a SQLite database with tables and without rows."""
    return f"sqlite:///{shutil.copy(empty_sqlite, tmp_path / 'store.db')}"


@pytest.fixture(scope="session")
def upgraded_postgresql(fresh_database: Callable[[], str]) -> Engine:
    url = fresh_database()
    upgrade(url)
    return create_engine(url)


@pytest.fixture
def postgresql_url(upgraded_postgresql: Engine) -> str:
    """URL of a PostgreSQL database with tables and without rows."""
    tables = [table for table in METADATA.sorted_tables if table is not CELLS]
    with upgraded_postgresql.begin() as connection:
        # Of few rows, DELETE is many times faster than TRUNCATE.
        connection.execute(text("; ".join(f"DELETE FROM {table.name}" for table in tables)))
    return upgraded_postgresql.url.render_as_string(hide_password=False)


@pytest.fixture(params=ADAPTERS)
def opener(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Opener]:
    """Open the one store of this test once more, as another process would.

    The twin lives in one process, so its second opening is the first.
    """
    with ExitStack() as opened:
        if request.param == "memory":
            store = MemoryStore(clock, wait_s=WAIT_S)
            yield lambda: store
            return
        url = request.getfixturevalue(f"{request.param}_url")

        def again() -> Store:
            another = SqlStore(url, clock, wait_s=WAIT_S)
            opened.callback(another.close)
            return another

        yield again


@pytest.fixture
def store(opener: Opener) -> Store:
    """A store of each kind."""
    return opener()
