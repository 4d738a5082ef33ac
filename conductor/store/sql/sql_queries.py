"""Questions that are more than fields that equal values."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import sqlalchemy as sa

from conductor.store.records import DISPATCHES
from models.lifecycle import ENDED, OperationState
from models.tables.schema import (
    DEAD_LETTERS,
    HEARTBEATS,
    INSTANCES,
    OPERATIONS,
    OUTBOX,
    REMOVALS,
    RUNNING,
)

_LIMIT: Final = sa.bindparam("row_limit", type_=sa.Integer)
_LIVE: Final = INSTANCES.c.state != sa.literal_column("'deleted'")


def _earliest(table: sa.Table, column: str) -> sa.Select[Any]:
    """Return ids of rows before `at`, those that another process is deleting left out."""
    moment = table.c[column]
    earlier = sa.select(table.c.id).where(moment < sa.bindparam("at"))
    ordered = earlier.order_by(moment, table.c.id).limit(_LIMIT)
    return ordered.with_for_update(skip_locked=True)


OVERDUE: Final = (
    sa.select(OPERATIONS.c.id)
    .where(sa.text(RUNNING), OPERATIONS.c.wake_at <= sa.bindparam("now"))
    .order_by(OPERATIONS.c.wake_at, OPERATIONS.c.id)
    .limit(_LIMIT)
)

UNANSWERED: Final = (
    sa.select(OPERATIONS.c.id)
    .where(
        sa.text(RUNNING),
        OPERATIONS.c.waiting_on.is_not(None),
        OPERATIONS.c.asked_at <= sa.bindparam("before"),
        sa.or_(*(OPERATIONS.c.waiting_on.startswith(kind, autoescape=True) for kind in DISPATCHES)),
    )
    .order_by(OPERATIONS.c.asked_at, OPERATIONS.c.id)
    .limit(_LIMIT)
)

WAITING_ON_COUNTS: Final = (
    sa.select(OPERATIONS.c.waiting_on, sa.func.count())
    .where(OPERATIONS.c.waiting_on.is_not(None))
    .group_by(OPERATIONS.c.waiting_on)
)

# By name, and not as what has not ended: only so do both databases go by the index of states.
_CURRENT: Final = [
    str(state) for state in OperationState if state not in ENDED or state is OperationState.STUCK
]
_ALIKE: Final = (OPERATIONS.c.kind, OPERATIONS.c.state, OPERATIONS.c.waiting_on)
CENSUS: Final = (
    sa.select(*_ALIKE, sa.func.count(), sa.func.min(OPERATIONS.c.created_at))
    .where(OPERATIONS.c.state.in_([sa.literal_column(f"'{state}'") for state in _CURRENT]))
    .group_by(*_ALIKE)
)

OUTBOX_OLDEST: Final = sa.select(sa.func.min(OUTBOX.c.created_at))

ENDED_SINCE: Final = (
    sa.select(OPERATIONS.c.id)
    .where(OPERATIONS.c.ended_at >= sa.bindparam("at"))
    .order_by(OPERATIONS.c.ended_at.desc(), OPERATIONS.c.id.desc())
    .limit(_LIMIT)
)

ENDED_BEFORE: Final = _earliest(OPERATIONS, "ended_at")
DELETED_BEFORE: Final = _earliest(INSTANCES, "deleted_at")
DEAD_BEFORE: Final = _earliest(DEAD_LETTERS, "at")
REMOVED_BEFORE: Final = _earliest(REMOVALS, "at")

OUTBOX_OLDER: Final = OUTBOX.c.created_at < sa.bindparam("at")

USAGE: Final = sa.select(
    sa.func.count(),
    sa.func.coalesce(sa.func.sum(INSTANCES.c.cores), 0),
    sa.func.coalesce(sa.func.sum(INSTANCES.c.memory_mib), 0),
    sa.func.coalesce(sa.func.sum(INSTANCES.c.disk_gb), 0),
).where(INSTANCES.c.project_id == sa.bindparam("project_id"), _LIVE)
USAGE_OF_USER: Final = USAGE.where(INSTANCES.c.user_id == sa.bindparam("user_id"))

# As text: PostgreSQL cannot tell whether two values of `json` are equal.
_KIND: Final = (sa.cast(INSTANCES.c.flavor, sa.Text), sa.cast(INSTANCES.c.image, sa.Text))
KINDS: Final = (
    sa.select(*_KIND, sa.func.count())
    .where(INSTANCES.c.project_id == sa.bindparam("project_id"), _LIVE)
    .group_by(*_KIND)
)
KINDS_OF_USER: Final = KINDS.where(INSTANCES.c.user_id == sa.bindparam("user_id"))

HOSTS_OF_GROUP: Final = (
    sa.select(INSTANCES.c.host, sa.func.count())
    .where(INSTANCES.c.group == sa.bindparam("group"), INSTANCES.c.host.is_not(None), _LIVE)
    .group_by(INSTANCES.c.host)
)


@lru_cache
def versions(table: sa.Table, key: str, version: str) -> sa.Select[Any]:
    """Return: key and version of all rows."""
    return sa.select(table.c[key], table.c[version])


# A transaction that a snapshot does not see has a number of at least the snapshot's xmin, so
# whatever is committed later carries at least that. PostgreSQL only.
_SNAPSHOT: Final = sa.select(
    sa.literal_column("pg_snapshot_xmin(pg_current_snapshot())::text::bigint").label("mark"),
    sa.literal_column("pg_snapshot_xmax(pg_current_snapshot())::text::bigint").label("next"),
).subquery("snapshot")


@lru_cache
def changes(
    table: sa.Table, key: str, version: str, *, since: bool, counted: bool
) -> sa.Select[Any]:
    """Return: the new mark, key and version; of all rows, or of those written since `mark`.

    The number of all rows comes last, where they are `counted`.
    """
    written = sa.and_(
        table.c.changed >= sa.bindparam("mark", type_=sa.BigInteger),
        # Numbers of a restored database may lie ahead: they say nothing until written anew.
        table.c.changed < _SNAPSHOT.c.next,
    )
    joined = _SNAPSHOT.outerjoin(table, written if since else sa.true())
    columns: list[Any] = [_SNAPSHOT.c.mark, table.c[key], table.c[version]]
    if counted:
        columns.append(sa.select(sa.func.count()).select_from(table.alias()).scalar_subquery())
    return sa.select(*columns).select_from(joined)


SILENT: Final = sa.select(HEARTBEATS.c.name).where(
    HEARTBEATS.c.kind == sa.bindparam("kind"), HEARTBEATS.c.seen_at < sa.bindparam("since")
)
