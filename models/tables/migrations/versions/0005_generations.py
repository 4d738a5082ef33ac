"""How far a database has got, and which database each worker obeys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    """Let the database count its generations from 1, and heartbeats say what is obeyed."""
    with op.batch_alter_table("identity") as identity:
        identity.add_column(sa.Column("generation", sa.BigInteger(), nullable=True))
        identity.add_column(sa.Column("raised_at", sa.Double(), nullable=True))
    op.execute("UPDATE identity SET generation = 1, raised_at = 0")
    with op.batch_alter_table("identity") as identity:
        identity.alter_column("generation", nullable=False)
        identity.alter_column("raised_at", nullable=False)
    with op.batch_alter_table("heartbeats") as heartbeats:
        heartbeats.add_column(sa.Column("obeys", _JSON, nullable=True))
