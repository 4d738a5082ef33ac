"""Bring a database to the tables that this version of the program knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.pool import NullPool

from models.errors import Rejected, Unreachable
from models.tables.database_errors import translated
from models.tables.engines import postgresql, sqlite_writer
from models.tables.schema import METADATA
from models.tables.urls import engine_url, shown_url

MIGRATIONS: Final = Path(__file__).parent / "migrations"

_NOT_OURS: Final = """
    SELECT name FROM unnest(CAST(:names AS text[])) AS name WHERE NOT (
        has_table_privilege(name, 'SELECT') AND has_table_privilege(name, 'INSERT')
        AND has_table_privilege(name, 'UPDATE') AND has_table_privilege(name, 'DELETE'))
"""
_LOCK: Final = 0x636F6E64
"""Number of the advisory lock that two upgrades of one PostgreSQL database take in turn."""


def upgrade(url: str) -> list[str]:
    """Create or change tables until they are up to date; return the revisions applied, in order.

    One transaction: a failed upgrade leaves the database as it was. Safe to call at any time
    and from several processes at once. Raises `Rejected` (`database_url_invalid`, or
    `database_newer` for tables that a later version made), `Conflict`, `Unreachable`.
    """
    target = engine_url(url)
    if target.get_backend_name() == "sqlite":
        engine = sqlite_writer(target)
    else:
        # Without the store's time limits: an index of a large table takes as long as it takes.
        engine = create_engine(target, poolclass=NullPool)
    try:
        with translated(), engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            return _upgraded(connection)
    finally:
        engine.dispose()


def check_ready(url: str) -> None:
    """Raise unless this version can work on the database as it is, with the role of the URL.

    `Unreachable` where it is away, can only be read, or has tables that `upgrade` has yet to
    bring up to date (`database_schema`), `Rejected` for those of a later version (`database_newer`)
    and for a role that may not write them (`database_role`).
    """
    target = engine_url(url)
    engine = sqlite_writer(target) if target.get_backend_name() == "sqlite" else postgresql(target)
    try:
        with translated(), engine.connect() as connection:
            scripts = ScriptDirectory(str(MIGRATIONS))
            _check_known(connection, scripts)
            found = MigrationContext.configure(connection).get_current_heads()
            if set(found) != set(scripts.get_heads()):
                stands = f"tables of revision {', '.join(found)}" if found else "no tables"
                raise Unreachable(
                    "database_schema",
                    f"{shown_url(url)} has {stands}, this version needs those of "
                    f"{', '.join(scripts.get_heads())}: `conductor db upgrade` makes them",
                )
            if connection.dialect.name == "postgresql":
                _check_role(connection, shown_url(url))
    finally:
        engine.dispose()


def _check_role(connection: Connection, shown: str) -> None:
    if connection.scalar(text("SELECT current_setting('transaction_read_only')")) == "on":
        raise Unreachable("database_read_only", f"{shown} can only be read")
    missing = connection.scalars(text(_NOT_OURS), {"names": sorted(METADATA.tables)}).all()
    if missing:
        some = ", ".join(missing[:3])
        message = f"{shown} has a role that may not read and write {len(missing)} tables: {some}"
        raise Rejected("database_role", message, key="database_url")


def _upgraded(connection: Connection) -> list[str]:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    _check_known(connection, ScriptDirectory.from_config(config))
    applied: list[str] = []

    def note(*, step: Any, **_context: object) -> None:
        applied.append(step.up_revision_id)

    config.attributes.update(connection=connection, on_version_apply=note)
    command.upgrade(config, "head")
    return applied


def _check_known(connection: Connection, scripts: ScriptDirectory) -> None:
    known = {script.revision for script in scripts.walk_revisions()}
    current = MigrationContext.configure(connection).get_current_heads()
    if unknown := sorted(set(current) - known):
        raise Rejected(
            "database_newer",
            f"database_url names tables of revision {unknown[0]}: a later version made them",
            key="database_url",
            revision=unknown[0],
        )
