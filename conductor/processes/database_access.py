"""How a command reaches the system: the settings, and the database when there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conductor.settings import Settings, read_settings
from conductor.store import Store, UnitOfWork
from conductor.store.open_store import open_store
from models.errors import Conflict, Rejected, Unreachable

ALIVE_WITHIN_S: Final = 5.0

_SQLITE: Final = "sqlite:///"


@dataclass(frozen=True, slots=True)
class DatabaseAccess:
    """The settings in force and the database that they name, open."""

    settings: Settings
    store: Store


@contextmanager
def open_database() -> Iterator[DatabaseAccess]:
    """Open what the environment names and close it at the end.

    Raises `Rejected` for wrong settings and `Unreachable` where there is no database.
    """
    settings = read_settings()
    _refuse_missing_database(settings)
    store = open_store(settings.store_url)
    try:
        yield DatabaseAccess(settings, store)
    finally:
        store.close()


def _refuse_missing_database(settings: Settings) -> None:
    if settings.broker_url and not settings.database_url:
        message = "CONDUCTOR_DATABASE_URL is not set: a system with a broker needs a database"
        raise Rejected("setting_missing", message, key="CONDUCTOR_DATABASE_URL")
    path = settings.store_url.removeprefix(_SQLITE)
    if path != settings.store_url and not Path(path).exists():
        message = f"there is no database at {path}: `conductor up` starts a system with one"
        raise Unreachable("no_database", message)


def conductor_lives(uow: UnitOfWork) -> bool:
    """Say whether a conductor has been heard of within the last seconds."""
    return heard_of(uow, "conductor") > 0


def heard_of(uow: UnitOfWork, kind: str) -> int:
    """Count the processes of a kind that have been heard of within the last seconds."""
    beats = uow.heartbeats.where(kind=kind)
    return sum(uow.now - beat.seen_at <= ALIVE_WITHIN_S for beat in beats)


def drop_heartbeat(store: Store, name: str) -> None:
    """Take the heartbeat of a process that ends in order, so that nobody counts on it."""
    try:
        with store.begin() as uow:
            uow.heartbeats.drop(name)
    except (Conflict, Unreachable):
        return  # without it the heartbeat merely grows old
