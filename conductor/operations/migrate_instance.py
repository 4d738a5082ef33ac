"""Move an instance to another host, stopped on the way; then await confirmation."""

from __future__ import annotations

from typing import cast

from conductor.operations import moves
from conductor.operations.cold_move import cold_move
from conductor.operations.definition import NewOperation
from conductor.operations.moves import Move, Plan
from conductor.store.ports import UnitOfWork
from models.lifecycle import InstanceState, MigrationKind
from models.messages.requests import MigrateInstance

migrate_instance = cold_move.variant("migrate_instance")


@migrate_instance.accept
def check(new: NewOperation, uow: UnitOfWork) -> Move:
    """The source must be up, a named target known and another one."""
    request = cast(MigrateInstance, new.request)
    instance = moves.movable(new, uow, (InstanceState.ACTIVE, InstanceState.STOPPED))
    moves.check_source(new, uow, instance, alive=True)
    moves.check_target(instance, request.host, uow, same=False)
    plan = Plan(MigrationKind.MIGRATION, instance.flavor, request.host)
    return moves.begin(new, uow, instance, plan)


migrate_instance.met(moves.is_elsewhere)
