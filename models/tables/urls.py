"""Which databases there are, and how their URL reaches SQLAlchemy."""

from __future__ import annotations

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from models.errors import Rejected

_DRIVERS = {
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}


def engine_url(url: str) -> URL:
    """Return a `sqlite:///FILE` or `postgresql://…` URL with the driver that we install.

    Raises `Rejected` (`database_url_invalid`), naming the value with its password hidden.
    """
    try:
        given = make_url(url)
    except (ArgumentError, ValueError):
        # Not shown whole: somewhere in it may be a password.
        scheme, separator, _ = url.partition("://")
        raise _rejected(f"{scheme}://…" if separator else "'…'", "it is no URL") from None
    driver = _DRIVERS.get(given.drivername)
    shown = given.render_as_string(hide_password=True)
    if driver is None:
        raise _rejected(shown, "it must begin with sqlite:///, postgresql:// or memory://")
    if driver == "sqlite" and given.database in {None, "", ":memory:"}:
        raise _rejected(url, "SQLite needs a file; without one say memory://")
    if driver != "sqlite" and not given.database:
        # The server would take the account's own database, and `db upgrade` fill that.
        raise _rejected(shown, "it names no database: postgresql://HOST/DATABASE")
    return given.set(drivername=driver)


def shown_url(url: str) -> str:
    """Return the URL of a database without its password."""
    return engine_url(url).render_as_string(hide_password=True)


def _rejected(shown: str, rule: str) -> Rejected:
    return Rejected(
        "database_url_invalid", f"database_url is {shown}: {rule}", key="database_url", value=shown
    )
