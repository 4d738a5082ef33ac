"""What Alembic runs: the revisions, on the connection and in the transaction of `upgrade`."""

from __future__ import annotations

from alembic import context

from models.tables.schema import METADATA


def run() -> None:
    """Apply what is missing."""
    attributes = context.config.attributes
    context.configure(
        connection=attributes["connection"],
        target_metadata=METADATA,
        on_version_apply=attributes["on_version_apply"],
        # SQLite can undo table changes too, once its driver keeps out of transactions.
        transactional_ddl=True,
    )
    context.run_migrations()


run()
