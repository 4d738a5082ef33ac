"""The first tables: operations, fleet, messages, and the mappings of deployment cells."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_TEXT = sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql")
_JSON = sa.JSON(none_as_null=True)
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create everything."""
    _operations()
    _instances()
    _hardware()
    _hosts()
    _allocations()
    _migrations()
    _heartbeats()
    _events()
    _decisions()
    _outbox()
    _dead_letters()
    _catalogue()
    _cells()
    _host_cells()
    _instance_cells()


def _operations() -> None:
    op.create_table(
        "operations",
        sa.Column("id", _TEXT, nullable=False),
        sa.Column("kind", _TEXT, nullable=False),
        sa.Column("definition_version", sa.BigInteger(), nullable=False),
        sa.Column("state", _TEXT, nullable=False),
        sa.Column("step", _TEXT, nullable=False),
        sa.Column("project_id", _TEXT, nullable=False),
        sa.Column("user_id", _TEXT, nullable=False),
        sa.Column("request_id", _TEXT, nullable=False),
        sa.Column("request", _JSON, nullable=False),
        sa.Column("digest", _TEXT, nullable=False),
        sa.Column("data", _JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("undoing", sa.Boolean(), nullable=False),
        sa.Column("resume_step", _TEXT, nullable=True),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("tries", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("waiting", _JSON, nullable=True),
        sa.Column("waiting_on", _TEXT, nullable=True),
        sa.Column("attempts", _JSON, nullable=False),
        sa.Column("error", _JSON, nullable=True),
        sa.Column("cancel", _TEXT, nullable=True),
        sa.Column("instance_id", _TEXT, nullable=True),
        sa.Column("parent_id", _TEXT, nullable=True),
        sa.Column("root_id", _TEXT, nullable=True),
        sa.Column("replay_of", _TEXT, nullable=True),
        sa.Column("reply_to", _TEXT, nullable=True),
        sa.Column("children_left", sa.BigInteger(), nullable=False),
        sa.Column("wake_at", sa.Double(), nullable=True),
        sa.Column("asked_at", sa.Double(), nullable=True),
        sa.Column("deadline_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_operations")),
    )
    op.create_index(op.f("ix_operations_created_at_id"), "operations", ["created_at", "id"])
    op.create_index(
        op.f("ix_operations_ended_at_id"),
        "operations",
        ["ended_at", "id"],
        unique=False,
        postgresql_where=sa.text("ended_at IS NOT NULL"),
        sqlite_where=sa.text("ended_at IS NOT NULL"),
    )
    op.create_index(op.f("ix_operations_instance_id"), "operations", ["instance_id"], unique=False)
    op.create_index(
        op.f("ix_operations_parent_id_ended_at"),
        "operations",
        ["parent_id", "ended_at"],
        unique=False,
        postgresql_where=sa.text("parent_id IS NOT NULL"),
        sqlite_where=sa.text("parent_id IS NOT NULL"),
    )
    op.create_index(
        op.f("ix_operations_replay_of"),
        "operations",
        ["replay_of"],
        unique=False,
        postgresql_where=sa.text("replay_of IS NOT NULL"),
        sqlite_where=sa.text("replay_of IS NOT NULL"),
    )
    op.create_index(
        op.f("ix_operations_waiting_on"),
        "operations",
        ["waiting_on"],
        unique=False,
        postgresql_where=sa.text("waiting_on IS NOT NULL"),
        sqlite_where=sa.text("waiting_on IS NOT NULL"),
    )
    op.create_index(
        op.f("ix_operations_state_created_at"), "operations", ["state", "created_at"], unique=False
    )
    op.create_index(
        op.f("ix_operations_wake_at_id"),
        "operations",
        ["wake_at", "id"],
        unique=False,
        postgresql_where=sa.text("state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'STUCK')"),
        sqlite_where=sa.text("state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'STUCK')"),
    )


def _instances() -> None:
    op.create_table(
        "instances",
        sa.Column("id", _TEXT, nullable=False),
        sa.Column("name", _TEXT, nullable=False),
        sa.Column("project_id", _TEXT, nullable=False),
        sa.Column("user_id", _TEXT, nullable=False),
        sa.Column("state", _TEXT, nullable=False),
        sa.Column("flavor", _JSON, nullable=False),
        sa.Column("image", _JSON, nullable=True),
        sa.Column("request_spec", _JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("task_state", _TEXT, nullable=True),
        sa.Column("power_state", _TEXT, nullable=False),
        sa.Column("host", _TEXT, nullable=True),
        sa.Column("group", _TEXT, nullable=True),
        sa.Column("availability_zone", _TEXT, nullable=True),
        sa.Column("placement", _JSON, nullable=True),
        sa.Column("fault", _JSON, nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("operation_id", _TEXT, nullable=True),
        sa.Column("deleted_at", sa.Double(), nullable=True),
        sa.Column("cores", sa.BigInteger(), nullable=False),
        sa.Column("memory_mib", sa.BigInteger(), nullable=False),
        sa.Column("disk_gb", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instances")),
    )
    op.create_index(
        op.f("ix_instances_created_at_id"), "instances", ["created_at", "id"], unique=False
    )
    op.create_index(
        op.f("ix_instances_deleted_at_id"),
        "instances",
        ["deleted_at", "id"],
        unique=False,
        postgresql_where=sa.text("deleted_at IS NOT NULL"),
        sqlite_where=sa.text("deleted_at IS NOT NULL"),
    )
    op.create_index(
        op.f("ix_instances_group"),
        "instances",
        ["group"],
        unique=False,
        postgresql_where=sa.text('"group" IS NOT NULL'),
        sqlite_where=sa.text('"group" IS NOT NULL'),
    )
    op.create_index(
        op.f("ix_instances_host"),
        "instances",
        ["host"],
        unique=False,
        postgresql_where=sa.text("host IS NOT NULL"),
        sqlite_where=sa.text("host IS NOT NULL"),
    )
    op.create_index(
        op.f("ix_instances_project_id_state"), "instances", ["project_id", "state"], unique=False
    )
    op.create_index(
        op.f("ix_instances_state_created_at"), "instances", ["state", "created_at"], unique=False
    )


def _hardware() -> None:
    op.create_table(
        "hardware",
        sa.Column("digest", _TEXT, nullable=False),
        sa.Column("body", _JSON, nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_hardware")),
    )


def _hosts() -> None:
    op.create_table(
        "hosts",
        sa.Column("name", _TEXT, nullable=False),
        sa.Column("hardware", _TEXT, nullable=False),
        sa.Column("topology", _JSON, nullable=False),
        sa.Column("inventory", _JSON, nullable=False),
        sa.Column("used", _JSON, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("hypervisor", _TEXT, nullable=False),
        sa.Column("traits", _JSON, nullable=False),
        sa.Column("cell_id", _TEXT, nullable=False),
        sa.Column("boot_id", _TEXT, nullable=True),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("disabled_reason", _TEXT, nullable=True),
        sa.Column("forced_down", sa.Boolean(), nullable=False),
        sa.Column("degraded", _TEXT, nullable=True),
        sa.Column("instances", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("provider_id", _TEXT, nullable=False),
        sa.Column("aggregates", _JSON, nullable=False),
        sa.Column("own_traits", _JSON, nullable=False),
        sa.Column("reported", _JSON, nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_hosts")),
    )
    op.create_index(op.f("ix_hosts_provider_id"), "hosts", ["provider_id"], unique=False)


def _allocations() -> None:
    op.create_table(
        "allocations",
        sa.Column("consumer_id", _TEXT, nullable=False),
        sa.Column("provider", _TEXT, nullable=False),
        sa.Column("amounts", _JSON, nullable=False),
        sa.Column("consumer_kind", _TEXT, nullable=False),
        sa.Column("project_id", _TEXT, nullable=False),
        sa.Column("user_id", _TEXT, nullable=False),
        sa.PrimaryKeyConstraint("consumer_id", "provider", name=op.f("pk_allocations")),
    )
    for column in ("provider", "project_id"):
        op.create_index(op.f(f"ix_allocations_{column}"), "allocations", [column], unique=False)


def _migrations() -> None:
    op.create_table(
        "migrations",
        sa.Column("id", _TEXT, nullable=False),
        sa.Column("instance_id", _TEXT, nullable=False),
        sa.Column("kind", _TEXT, nullable=False),
        sa.Column("state", _TEXT, nullable=False),
        sa.Column("operation_id", _TEXT, nullable=False),
        sa.Column("source", _TEXT, nullable=False),
        sa.Column("source_flavor", _JSON, nullable=False),
        sa.Column("target_flavor", _JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("source_placement", _JSON, nullable=True),
        sa.Column("target", _TEXT, nullable=True),
        sa.Column("target_placement", _JSON, nullable=True),
        sa.Column("requested_host", _TEXT, nullable=True),
        sa.Column("same_host", sa.Boolean(), nullable=False),
        sa.Column("switched", sa.Boolean(), nullable=False),
        sa.Column("was_running", sa.Boolean(), nullable=False),
        sa.Column("progress_percent", sa.BigInteger(), nullable=False),
        sa.Column("error", _JSON, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_migrations")),
    )
    op.create_index(
        op.f("ix_migrations_created_at_id"), "migrations", ["created_at", "id"], unique=False
    )
    op.create_index(
        op.f("ix_migrations_instance_id_created_at"),
        "migrations",
        ["instance_id", "created_at"],
        unique=False,
    )
    op.create_index(
        op.f("ix_migrations_source_state"), "migrations", ["source", "state"], unique=False
    )
    op.create_index(
        op.f("ix_migrations_state_updated_at"), "migrations", ["state", "updated_at"], unique=False
    )
    op.create_index(
        op.f("ix_migrations_target_state"), "migrations", ["target", "state"], unique=False
    )


def _heartbeats() -> None:
    op.create_table(
        "heartbeats",
        sa.Column("name", _TEXT, nullable=False),
        sa.Column("kind", _TEXT, nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.Column("reported_at", sa.Double(), nullable=False),
        sa.Column("called_at", sa.Double(), nullable=False),
        sa.Column("unheard_since", sa.Double(), nullable=False),
        sa.Column("work", _JSON, nullable=False),
        sa.Column("boot_id", _TEXT, nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("listed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_heartbeats")),
    )


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("id", _SERIAL, autoincrement=True, nullable=False),
        sa.Column("operation_id", _TEXT, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("event", _TEXT, nullable=False),
        sa.Column("detail", _TEXT, nullable=False),
        sa.Column("instance_id", _TEXT, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index(op.f("ix_events_operation_id"), "events", ["operation_id"], unique=False)


def _decisions() -> None:
    op.create_table(
        "decisions",
        sa.Column("id", _TEXT, nullable=False),
        sa.Column("operation_id", _TEXT, nullable=False),
        sa.Column("instance_id", _TEXT, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("host", _TEXT, nullable=True),
        sa.Column("detail", _JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_decisions")),
    )
    op.create_index(op.f("ix_decisions_instance_id"), "decisions", ["instance_id"], unique=False)
    op.create_index(op.f("ix_decisions_operation_id"), "decisions", ["operation_id"], unique=False)


def _outbox() -> None:
    op.create_table(
        "outbox",
        sa.Column("id", _TEXT, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("queue", _TEXT, nullable=False),
        sa.Column("task", _TEXT, nullable=False),
        sa.Column("body", _JSON, nullable=False),
        sa.Column("root_id", _TEXT, nullable=True),
        sa.Column("parent_id", _TEXT, nullable=True),
        sa.Column("shown", _TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
    )
    op.create_index(op.f("ix_outbox_created_at_id"), "outbox", ["created_at", "id"], unique=False)


def _dead_letters() -> None:
    op.create_table(
        "dead_letters",
        sa.Column("id", _TEXT, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("queue", _TEXT, nullable=False),
        sa.Column("task", _TEXT, nullable=False),
        sa.Column("reason", _TEXT, nullable=False),
        sa.Column("body", _TEXT, nullable=False),
        sa.Column("headers", _JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dead_letters")),
    )
    op.create_index(op.f("ix_dead_letters_at_id"), "dead_letters", ["at", "id"], unique=False)


def _catalogue() -> None:
    op.create_table(
        "catalogue",
        sa.Column("kind", _TEXT, nullable=False),
        sa.Column("name", _TEXT, nullable=False),
        sa.Column("body", _JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", name=op.f("pk_catalogue")),
    )


def _cells() -> None:
    cells = op.create_table(
        "cells",
        sa.Column("id", _TEXT, nullable=False),
        sa.Column("name", _TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cells")),
        sa.UniqueConstraint("name", name=op.f("uq_cells_name")),
    )
    # The home of builds that found no host, and the one cell of the first releases.
    op.bulk_insert(cells, [{"id": "cell0", "name": "cell0"}, {"id": "cell1", "name": "cell1"}])


def _host_cells() -> None:
    op.create_table(
        "host_cells",
        sa.Column("host", _TEXT, nullable=False),
        sa.Column("cell_id", _TEXT, nullable=False),
        sa.ForeignKeyConstraint(["cell_id"], ["cells.id"], name=op.f("fk_host_cells_cell_id")),
        sa.PrimaryKeyConstraint("host", name=op.f("pk_host_cells")),
    )
    op.create_index(op.f("ix_host_cells_cell_id"), "host_cells", ["cell_id"], unique=False)


def _instance_cells() -> None:
    op.create_table(
        "instance_cells",
        sa.Column("instance_id", _TEXT, nullable=False),
        sa.Column("cell_id", _TEXT, nullable=False),
        sa.ForeignKeyConstraint(["cell_id"], ["cells.id"], name=op.f("fk_instance_cells_cell_id")),
        sa.PrimaryKeyConstraint("instance_id", name=op.f("pk_instance_cells")),
    )
    op.create_index(op.f("ix_instance_cells_cell_id"), "instance_cells", ["cell_id"], unique=False)
