"""The tables: one real column for each scalar that anybody asks for, JSON text for what is nested.

No foreign key joins the tables of the unit of work: a late message may tell of an operation
that retention has dropped, and the in-memory twin promises nothing a key would enforce.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import TEXT
from sqlalchemy.types import JSON

METADATA: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
    }
)

# Compared byte by byte everywhere, so that PostgreSQL sorts and locks in the order of Python.
_TEXT: Final = Text().with_variant(TEXT(collation="C"), "postgresql")
# SQLite numbers rows by itself only in a column declared INTEGER.
_SERIAL: Final = BigInteger().with_variant(Integer(), "sqlite")
# PostgreSQL's json, not jsonb: it keeps what was written unchanged, `\u0000` included.
_JSON: Final = JSON(none_as_null=True)

RUNNING: Final = "state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'STUCK')"
"""Operations that have not ended. Spelled the same in the query, or SQLite ignores the index."""


def _key(name: str = "id") -> Column[Any]:
    return Column(name, _TEXT, primary_key=True)


def _text(name: str, *, absent: bool = False) -> Column[Any]:
    return Column(name, _TEXT, nullable=absent)


def _time(name: str, *, absent: bool = False) -> Column[Any]:
    return Column(name, Double(), nullable=absent)


def _count(name: str) -> Column[Any]:
    return Column(name, BigInteger(), nullable=False)


def _flag(name: str) -> Column[Any]:
    return Column(name, Boolean(), nullable=False)


def _json(name: str, *, absent: bool = False) -> Column[Any]:
    return Column(name, _JSON, nullable=absent)


def _partial(where: str) -> dict[str, Any]:
    return {"postgresql_where": text(where), "sqlite_where": text(where)}


OPERATIONS: Final = Table(
    "operations",
    METADATA,
    _key(),
    _text("kind"),
    _count("definition_version"),
    _text("state"),
    _text("step"),
    _text("project_id"),
    _text("user_id"),
    _text("request_id"),
    _json("request"),
    _text("digest"),
    _json("data"),
    _time("created_at"),
    _time("updated_at"),
    _flag("undoing"),
    _text("resume_step", absent=True),
    _count("attempt"),
    _count("tries"),
    _count("sequence"),
    _json("waiting", absent=True),
    _text("waiting_on", absent=True),
    _json("attempts"),
    _json("error", absent=True),
    _text("cancel", absent=True),
    _text("instance_id", absent=True),
    _text("parent_id", absent=True),
    _text("root_id", absent=True),
    _text("replay_of", absent=True),
    _text("reply_to", absent=True),
    _count("children_left"),
    _time("wake_at", absent=True),
    _time("asked_at", absent=True),
    _time("deadline_at", absent=True),
    _time("ended_at", absent=True),
    Index(None, "created_at", "id"),
    Index(None, "state", "created_at"),
    Index(None, "instance_id"),
    Index(None, "parent_id", "ended_at", **_partial("parent_id IS NOT NULL")),
    Index(None, "replay_of", **_partial("replay_of IS NOT NULL")),
    Index(None, "waiting_on", **_partial("waiting_on IS NOT NULL")),
    Index(None, "ended_at", "id", **_partial("ended_at IS NOT NULL")),
    Index(None, "wake_at", "id", **_partial(RUNNING)),
)

INSTANCES: Final = Table(
    "instances",
    METADATA,
    _key(),
    _text("name"),
    _text("project_id"),
    _text("user_id"),
    _text("state"),
    _json("flavor"),
    _json("image", absent=True),
    _json("request_spec"),
    _time("created_at"),
    _time("updated_at"),
    _text("task_state", absent=True),
    _text("power_state"),
    _text("host", absent=True),
    _text("group", absent=True),
    _text("availability_zone", absent=True),
    _json("placement", absent=True),
    _json("fault", absent=True),
    _count("fence"),
    _text("operation_id", absent=True),
    _time("deleted_at", absent=True),
    # Copies out of `flavor`, so that a project's use is one sum and no walk over JSON.
    _count("cores"),
    _count("memory_mib"),
    _count("disk_gb"),
    Index(None, "created_at", "id"),
    Index(None, "project_id", "state"),
    Index(None, "state", "created_at"),
    Index(None, "host", **_partial("host IS NOT NULL")),
    Index(None, "group", **_partial('"group" IS NOT NULL')),
    Index(None, "deleted_at", "id", **_partial("deleted_at IS NOT NULL")),
)

# The NUMA cells of a host without their use, once for all hosts that are alike.
HARDWARE: Final = Table(
    "hardware",
    METADATA,
    _key("digest"),
    _json("body"),
)

HOSTS: Final = Table(
    "hosts",
    METADATA,
    _key("name"),
    _text("hardware"),
    _json("topology"),
    _json("inventory"),
    _json("used"),
    _count("version"),
    _text("hypervisor"),
    _json("traits"),
    _text("cell_id"),
    _text("boot_id", absent=True),
    _flag("enabled"),
    _text("disabled_reason", absent=True),
    _flag("forced_down"),
    _text("degraded", absent=True),
    _count("instances"),
    _time("created_at"),
    _time("updated_at"),
    # The transaction that wrote the row last; PostgreSQL's trigger keeps it, SQLite leaves it.
    Column("changed", BigInteger(), nullable=False, server_default="0"),
    _text("provider_id"),
    _json("aggregates"),
    _json("own_traits"),
    _json("reported", absent=True),
    Index(None, "changed"),
    Index(None, "provider_id"),
)

MIGRATIONS: Final = Table(
    "migrations",
    METADATA,
    _key(),
    _text("instance_id"),
    _text("kind"),
    _text("state"),
    _text("operation_id"),
    _text("source"),
    _json("source_flavor"),
    _json("target_flavor"),
    _time("created_at"),
    _time("updated_at"),
    _json("source_placement", absent=True),
    _text("target", absent=True),
    _json("target_placement", absent=True),
    _text("requested_host", absent=True),
    _flag("same_host"),
    _flag("switched"),
    _flag("was_running"),
    _count("progress_percent"),
    _json("error", absent=True),
    Index(None, "created_at", "id"),
    Index(None, "instance_id", "created_at"),
    Index(None, "source", "state"),
    Index(None, "target", "state"),
    Index(None, "state", "updated_at"),
)

ALLOCATIONS: Final = Table(
    "allocations",
    METADATA,
    _key("consumer_id"),
    _key("provider"),
    _json("amounts"),
    _text("consumer_kind"),
    _text("project_id"),
    _text("user_id"),
    Index(None, "provider"),
    Index(None, "project_id"),
)

# Resource providers that are no hosts: children in the trees of hosts, and those that share.
PROVIDERS: Final = Table(
    "providers",
    METADATA,
    _key(),
    Column("name", _TEXT, nullable=False, unique=True),
    _text("parent_id", absent=True),
    _text("root_id"),
    _count("generation"),
    _json("inventories"),
    _json("used"),
    _json("traits"),
    _json("aggregates"),
    # As of `hosts`.
    Column("changed", BigInteger(), nullable=False, server_default="0"),
    Index(None, "parent_id"),
    Index(None, "root_id"),
    Index(None, "changed"),
)

HEARTBEATS: Final = Table(
    "heartbeats",
    METADATA,
    _key("name"),
    _text("kind"),
    _time("seen_at"),
    _time("reported_at"),
    _time("called_at"),
    _time("unheard_since"),
    _json("work"),
    _text("boot_id"),
    _count("sequence"),
    _count("listed"),
    _json("obeys", absent=True),
)

# One row: what tells this database from every other, and how far it has got.
IDENTITY: Final = Table("identity", METADATA, _key(), _count("generation"), _time("raised_at"))

REGISTRATIONS: Final = Table(
    "registrations",
    METADATA,
    _key("host"),
    _text("worker_id"),
    _text("machine_id"),
    _text("machine_boot"),
    _text("boot_id"),
    _count("boot"),
    _time("registered_at"),
    _json("unexpected"),
    _count("unexpected_count"),
    _json("refused", absent=True),
    _json("notes"),
    _flag("troubled"),
    Index(None, "worker_id"),
    Index(None, "machine_id"),
)

REMOVALS: Final = Table(
    "removals",
    METADATA,
    _key(),
    _text("instance_id"),
    _text("host"),
    _text("operation_id"),
    _count("fence"),
    _time("at"),
    Index(None, "at", "id"),
)

EVENTS: Final = Table(
    "events",
    METADATA,
    Column("id", _SERIAL, primary_key=True, autoincrement=True),
    _text("operation_id"),
    _time("at"),
    _text("event"),
    _text("detail"),
    _text("instance_id", absent=True),
    Index(None, "operation_id"),
)

DECISIONS: Final = Table(
    "decisions",
    METADATA,
    _key(),
    _text("operation_id"),
    _text("instance_id"),
    _time("at"),
    _text("host", absent=True),
    _json("detail"),
    Index(None, "operation_id"),
    Index(None, "instance_id"),
)

DEAD_LETTERS: Final = Table(
    "dead_letters",
    METADATA,
    _key(),
    _time("at"),
    _text("queue"),
    _text("task"),
    _text("reason"),
    _text("body"),
    _json("headers"),
    Index(None, "at", "id"),
)

OUTBOX: Final = Table(
    "outbox",
    METADATA,
    _key(),
    _time("created_at"),
    _text("queue"),
    _text("task"),
    _json("body"),
    _text("root_id", absent=True),
    _text("parent_id", absent=True),
    _text("shown"),
    Index(None, "created_at", "id"),
)

CATALOGUE: Final = Table(
    "catalogue",
    METADATA,
    _key("kind"),
    _key("name"),
    _json("body"),
    _time("created_at"),
)

# Deployment cells: shards with a database and a broker of their own. A host or an instance
# without a row in the mappings is in FIRST_CELL.
CELLS: Final = Table(
    "cells",
    METADATA,
    _key(),
    Column("name", _TEXT, nullable=False, unique=True),
)

HOST_CELLS: Final = Table(
    "host_cells",
    METADATA,
    _key("host"),
    Column("cell_id", _TEXT, ForeignKey("cells.id"), nullable=False, index=True),
)

INSTANCE_CELLS: Final = Table(
    "instance_cells",
    METADATA,
    _key("instance_id"),
    Column("cell_id", _TEXT, ForeignKey("cells.id"), nullable=False, index=True),
)

NEVER_SCHEDULED: Final = "cell0"
"""Home of builds that no host was found for; it has no hosts."""

FIRST_CELL: Final = "cell1"
"""Where everything without a mapping row is: the one cell of the first releases."""
