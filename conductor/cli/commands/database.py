"""Look after the database."""

from __future__ import annotations

from pathlib import Path

import typer

from conductor.cli.rendering.output import Output, show_all
from conductor.cli.rendering.text_tables import key, table_of
from conductor.exit_codes import say
from conductor.processes.state_folders import make_folder
from conductor.settings import Settings, read_settings
from models.errors import Rejected
from models.tables.schema_upgrade import upgrade as upgrade_tables
from models.tables.urls import shown_url

_SQLITE = "sqlite:///"


def add_to(app: typer.Typer) -> None:
    """Add `db` with its verb."""
    database = typer.Typer(help="Look after the database.")
    database.callback()(lambda: None)
    database.command("upgrade")(upgrade)
    app.add_typer(database, name="db", no_args_is_help=True)


def upgrade(output: Output = None) -> None:
    """Create tables or bring them up to date; again is harmless."""
    settings = read_settings()
    if settings.broker_url and not settings.database_url:
        message = "CONDUCTOR_DATABASE_URL is not set: a system with a broker needs a database"
        raise Rejected("setting_missing", message, key="CONDUCTOR_DATABASE_URL")
    rows = [{"revision": revision} for revision in prepared(settings)]
    say(f"{shown_url(settings.store_url)} is up to date")
    show_all(rows, output, lambda: table_of(rows, (("revisions applied", key("revision")),)))


def prepared(settings: Settings) -> list[str]:
    """Make the folder of a SQLite database and bring the tables up to date."""
    if settings.store_url.startswith(_SQLITE):
        folder = Path(settings.store_url.removeprefix(_SQLITE)).parent
        named = "CONDUCTOR_DATABASE_URL" if settings.database_url else "CONDUCTOR_STATE_DIR"
        make_folder(folder, named)
    return upgrade_tables(settings.store_url)
