"""Which transaction changed a host last, so that a scheduler can follow without reading all."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_NOTE = """
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.changed := pg_current_xact_id()::text::bigint;
    RETURN NEW;
END
$$
"""
_TRIGGER = """
CREATE TRIGGER note_change BEFORE INSERT OR UPDATE ON hosts
FOR EACH ROW EXECUTE FUNCTION note_change()
"""


def upgrade() -> None:
    """Add the column, and on PostgreSQL what keeps it: whoever writes need not know of it."""
    op.add_column(
        "hosts", sa.Column("changed", sa.BigInteger(), server_default="0", nullable=False)
    )
    op.create_index(op.f("ix_hosts_changed"), "hosts", ["changed"], unique=False)
    if op.get_bind().dialect.name == "postgresql":
        op.execute(_NOTE)
        op.execute(_TRIGGER)
