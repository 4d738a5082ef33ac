"""Move an instance to another host, stopped on the way; then await confirmation."""

from __future__ import annotations

from typing import cast

from conductor.operations.engine.definition import NewOperation
from conductor.operations.steps import move_steps
from conductor.operations.steps.cold_move import cold_move
from conductor.operations.steps.move_steps import Move, Plan
from conductor.store import UnitOfWork
from models.lifecycle import InstanceState, MigrationKind
from models.messages.requests import MigrateInstance

migrate_instance = cold_move.variant("migrate_instance")


@migrate_instance.accept
def check(new: NewOperation, uow: UnitOfWork) -> Move:
    """The source must be up, a named target known and another one; a virtual TPM stays."""
    request = cast(MigrateInstance, new.request)
    instance = move_steps.movable(new, uow, (InstanceState.ACTIVE, InstanceState.STOPPED))
    move_steps.check_source(new, uow, instance, alive=True)
    move_steps.refuse_lost_tpm(instance, "migrate it live")
    move_steps.check_target(instance, request.host, uow, same=False)
    plan = Plan(MigrationKind.MIGRATION, instance.flavor, request.host)
    return move_steps.begin(new, uow, instance, plan)


migrate_instance.met(move_steps.is_elsewhere)
