"""Resource providers that are no hosts: children in the trees of hosts, and those that share."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TEXT

revision = "0003"
down_revision = "0002"

_TEXT = sa.Text().with_variant(TEXT(collation="C"), "postgresql")
_JSON = sa.JSON(none_as_null=True)
_TRIGGER = """
CREATE TRIGGER note_change BEFORE INSERT OR UPDATE ON providers
FOR EACH ROW EXECUTE FUNCTION note_change()
"""


def upgrade() -> None:
    """Add the table, on PostgreSQL with what notes the transaction that wrote a row last."""
    op.create_table(
        "providers",
        sa.Column("id", _TEXT, nullable=False),
        sa.Column("name", _TEXT, nullable=False),
        sa.Column("parent_id", _TEXT, nullable=True),
        sa.Column("root_id", _TEXT, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("inventories", _JSON, nullable=False),
        sa.Column("used", _JSON, nullable=False),
        sa.Column("traits", _JSON, nullable=False),
        sa.Column("aggregates", _JSON, nullable=False),
        sa.Column("changed", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_providers")),
        sa.UniqueConstraint("name", name=op.f("uq_providers_name")),
    )
    for column in ("parent_id", "root_id", "changed"):
        op.create_index(op.f(f"ix_providers_{column}"), "providers", [column], unique=False)
    if op.get_bind().dialect.name == "postgresql":
        op.execute(_TRIGGER)
