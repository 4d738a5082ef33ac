"""Records, tables and migrations say the same."""

from collections.abc import Callable
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import JSON, create_engine, inspect, text
from sqlalchemy.pool import NullPool

from conductor.store import table_metadata
from conductor.store.table_metadata import Shape
from models.errors import Rejected, Unreachable
from models.lifecycle import ENDED
from models.tables.schema import CELLS, FIRST_CELL, METADATA, NEVER_SCHEDULED, RUNNING
from models.tables.schema_upgrade import MIGRATIONS, upgrade

SHAPES = [var for var in vars(table_metadata).values() if isinstance(var, Shape)]
SCALARS = (str, float, int, bool)
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)


@pytest.fixture(params=["sqlite", "postgresql"])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of a database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/new.db"
    fresh: Callable[[], str] = request.getfixturevalue("fresh_database")
    return fresh()


def test_the_migrated_database_is_what_the_tables_say(new_url: str) -> None:
    assert upgrade(new_url) == sorted(path.stem[:4] for path in _revisions())
    engine = create_engine(new_url, poolclass=NullPool)
    with engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True}
        differences = compare_metadata(
            MigrationContext.configure(connection, opts=options), METADATA
        )
        assert differences == []


def test_the_migrated_indexes_leave_out_what_the_tables_say(new_url: str) -> None:
    upgrade(new_url)
    engine = create_engine(new_url, poolclass=NullPool)
    inspector = inspect(engine)
    dialect = engine.dialect.name
    for table in METADATA.tables.values():
        migrated = {index["name"]: index for index in inspector.get_indexes(table.name)}
        for index in table.indexes:
            options: dict[str, Any] = migrated[index.name].get("dialect_options", {})
            declared = index.dialect_options[dialect]["where"] is not None
            assert (f"{dialect}_where" in options) is declared, index.name


def test_upgrading_again_changes_nothing(new_url: str) -> None:
    upgrade(new_url)
    assert upgrade(new_url) == []


def test_a_database_of_a_later_version_is_left_alone(new_url: str) -> None:
    upgrade(new_url)
    engine = create_engine(new_url, poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(Rejected) as caught:
        upgrade(new_url)
    assert (caught.value.code, caught.value.key) == ("database_newer", "database_url")
    assert "9999" in caught.value.message


def test_an_upgrade_that_cannot_reach_the_database_says_so(tmp_path: Path) -> None:
    for url in (f"sqlite:///{tmp_path}/no/such/folder.db", "postgresql://ann@127.0.0.1:1/x"):
        with pytest.raises(Unreachable) as caught:
            upgrade(url)
        assert caught.value.code == "database_unreachable"


def test_a_cell_exists_and_so_does_the_home_of_what_found_no_host(new_url: str) -> None:
    upgrade(new_url)
    engine = create_engine(new_url, poolclass=NullPool)
    with engine.connect() as connection:
        cells = connection.execute(CELLS.select()).scalars().all()
    assert sorted(cells) == [NEVER_SCHEDULED, FIRST_CELL]


def test_every_revision_has_its_number_and_follows_the_one_before() -> None:
    numbers = [int(path.stem[:4]) for path in _revisions()]
    assert numbers == list(range(1, len(numbers) + 1))


@every_shape
def test_every_field_has_a_column_and_every_required_column_a_field(shape: Shape[Any]) -> None:
    columns = METADATA.tables[shape.name].columns
    assert set(shape.fields) <= set(columns.keys())
    extra = set(columns.keys()) - set(shape.fields)
    assert extra <= {"cores", "memory_mib", "disk_gb", "hardware", "changed"}
    assert tuple(column.name for column in columns if column.primary_key) == shape.key


@every_shape
def test_a_field_may_be_absent_where_its_column_may(shape: Shape[Any]) -> None:
    hints = get_type_hints(shape.record)
    for name in shape.fields:
        absent = type(None) in _alternatives(hints[name])
        column = METADATA.tables[shape.name].columns[name]
        assert column.nullable is (absent and not column.primary_key), name


@every_shape
def test_every_nested_field_has_a_codec_and_a_json_column(shape: Shape[Any]) -> None:
    hints = get_type_hints(shape.record)
    for field in fields(shape.record):
        kinds = _alternatives(hints[field.name]) - {type(None)}
        plain = kinds <= set(SCALARS)
        state = all(isinstance(kind, type) and issubclass(kind, StrEnum) for kind in kinds)
        known = field.name in shape.codecs or field.name in shape.opaque
        assert known or plain, field.name
        column = METADATA.tables[shape.name].columns[field.name]
        assert isinstance(column.type, JSON) is not (plain or state), field.name


def test_running_operations_are_those_that_have_not_ended() -> None:
    listed = RUNNING.partition("(")[2].rstrip(")").replace("'", "").split(", ")
    assert set(listed) == set(ENDED)


def _alternatives(hint: Any) -> set[Any]:
    return set(get_args(hint)) if get_origin(hint) in {Union, UnionType} else {hint}


def _revisions() -> list[Path]:
    return sorted((MIGRATIONS / "versions").glob("[0-9]*.py"))
