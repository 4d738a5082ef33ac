"""Who serves a host's name, which guests were removed by whom, and which database this is."""

from __future__ import annotations

import uuid

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TEXT

revision = "0004"
down_revision = "0003"

_TEXT = sa.Text().with_variant(TEXT(collation="C"), "postgresql")
_JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    """Add the tables, and to `identity` the one row that it will ever have."""
    identity = op.create_table(
        "identity",
        sa.Column("id", _TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_identity")),
    )
    op.bulk_insert(identity, [{"id": str(uuid.uuid4())}])
    _registrations()
    op.create_table(
        "removals",
        sa.Column("id", _TEXT, nullable=False),
        sa.Column("instance_id", _TEXT, nullable=False),
        sa.Column("host", _TEXT, nullable=False),
        sa.Column("operation_id", _TEXT, nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_removals")),
    )
    op.create_index(op.f("ix_removals_at_id"), "removals", ["at", "id"], unique=False)


def _registrations() -> None:
    op.create_table(
        "registrations",
        sa.Column("host", _TEXT, nullable=False),
        sa.Column("worker_id", _TEXT, nullable=False),
        sa.Column("machine_id", _TEXT, nullable=False),
        sa.Column("machine_boot", _TEXT, nullable=False),
        sa.Column("boot_id", _TEXT, nullable=False),
        sa.Column("boot", sa.BigInteger(), nullable=False),
        sa.Column("registered_at", sa.Double(), nullable=False),
        sa.Column("unexpected", _JSON, nullable=False),
        sa.Column("unexpected_count", sa.BigInteger(), nullable=False),
        sa.Column("refused", _JSON, nullable=True),
        sa.Column("notes", _JSON, nullable=False),
        sa.Column("troubled", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("host", name=op.f("pk_registrations")),
    )
    for column in ("worker_id", "machine_id"):
        name = op.f(f"ix_registrations_{column}")
        op.create_index(name, "registrations", [column], unique=False)
