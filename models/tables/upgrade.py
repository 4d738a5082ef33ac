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

from models.errors import Rejected
from models.tables.engines import sqlite_writer
from models.tables.failures import translated
from models.tables.urls import engine_url

MIGRATIONS: Final = Path(__file__).parent / "migrations"

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
