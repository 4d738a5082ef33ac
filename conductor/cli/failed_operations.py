"""Operations that have failed, and those of them that a replay has put right."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from conductor.cli.store_queries import chunks, only_one
from conductor.operations.operation_registry import OPERATIONS
from conductor.store import OperationRecord, UnitOfWork
from models.errors import Rejected
from models.lifecycle import OperationState

FAILED: Final = (OperationState.FAILED, OperationState.STUCK)
_MOVES: Final = (
    "migrate_instance",
    "resize_instance",
    "live_migrate_instance",
    "evacuate_instance",
    "confirm_resize",
    "revert_resize",
)
"""Kinds of operations that `migrations replay --all` replays."""

_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def failed_moves(uow: UnitOfWork, since: str) -> list[OperationRecord]:
    """Return the moves that failed lately and that were not replayed since.

    Of a chain of replays the last: its forerunners are over. What was refused at the door has no
    state and is left out: nobody waits for it any more.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", since)
    if found is None:
        message = f"--since is {since}: should be a number with s, m, h or d, like 2h"
        raise Rejected("since_invalid", message, key="--since")
    oldest = uow.now - float(found[1]) * _UNITS[found[2]]
    failed = [
        record
        for record in uow.operations.where(state=FAILED)
        if record.kind in _MOVES and (record.ended_at or 0.0) >= oldest and record.data
    ]
    replayed = {
        later.replay_of
        for some in chunks([record.id for record in failed])
        for later in uow.operations.where(replay_of=some)
        if later.kind in OPERATIONS and (later.data or later.state is OperationState.SUCCEEDED)
    }
    return [record for record in failed if record.id not in replayed]


def mended_since(uow: UnitOfWork, ids: Sequence[str]) -> set[str]:
    """Return those of the failed operations of which a replay, or a replay of that, succeeded."""
    first = {id_: id_ for id_ in ids}
    mended: set[str] = set()
    while first:
        later = [
            record
            for some in chunks(list(first))
            for record in uow.operations.where(replay_of=some)
            if record.kind in OPERATIONS
        ]
        mended |= {first[r.replay_of or ""] for r in later if r.state is OperationState.SUCCEEDED}
        first = {r.id: first[r.replay_of or ""] for r in later if r.state.ended}
    return mended


def operation_or_move(uow: UnitOfWork, name: str) -> OperationRecord:
    """Return the operation with this id, or of the move with this id; raise `Rejected`."""
    move = only_one(uow.migrations, name, "migrations", "ID")
    record = only_one(uow.operations, move.operation_id if move else name, "operations", "ID")
    if record is None:
        raise Rejected("operation_unknown", f"ID is {name}: no such operation or move", key="ID")
    return record
