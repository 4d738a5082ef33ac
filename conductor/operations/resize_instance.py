"""Give an instance another flavor, on another host or its own; then await confirmation."""

from __future__ import annotations

from typing import cast

from conductor.operations.engine.definition import NewOperation
from conductor.operations.steps import move_steps
from conductor.operations.steps.build_request import NO_IMAGE, flavor_of, image_fits
from conductor.operations.steps.cold_move import cold_move
from conductor.operations.steps.instance_steps import has_local_disk
from conductor.operations.steps.move_steps import Move, Plan
from conductor.operations.steps.quota_check import Owner, check_quota, growth
from conductor.operations.steps.unsupported_fields import refuse_flavor_keys
from conductor.store import UnitOfWork
from models.errors import Rejected
from models.hardware.requirements.guest_requirements import refuse_contradictions
from models.lifecycle import InstanceState, MigrationKind
from models.messages.guests.requested_hardware import hardware_of
from models.messages.requests import ResizeInstance

resize_instance = cold_move.variant("resize_instance")


@resize_instance.accept
def check(new: NewOperation, uow: UnitOfWork) -> Move:
    """The new flavor must differ, be enough for the image and not shrink a local root disk.

    A guest with a virtual TPM keeps its size: a resize may take it to another host.
    """
    request = cast(ResizeInstance, new.request)
    instance = move_steps.movable(new, uow, (InstanceState.ACTIVE, InstanceState.STOPPED))
    move_steps.check_source(new, uow, instance, alive=True)
    move_steps.refuse_lost_tpm(instance, "build another of the new flavor")
    move_steps.check_target(instance, request.host, uow, same=True)
    flavor = flavor_of(request.flavor, uow, "flavor")
    if flavor == instance.flavor:
        raise Rejected("flavor_same", f"flavor is {flavor.name}: it has this one", key="flavor")
    if has_local_disk(instance) and flavor.root_gb < instance.flavor.root_gb:
        had = instance.flavor.root_gb
        message = f"root_gb is {flavor.root_gb}: the disk has {had} and cannot shrink"
        raise Rejected("disk_shrinks", message, key="flavor")
    refuse_flavor_keys(flavor)
    refuse_contradictions(flavor, instance.image or NO_IMAGE)
    hardware_of(flavor, instance.image)
    if instance.image is not None:
        image_fits(instance.image, flavor, "flavor")
    owner = Owner(instance.project_id, instance.user_id)
    check_quota(uow, owner, growth(instance, flavor))
    plan = Plan(MigrationKind.RESIZE, flavor, request.host, same_host=True)
    return move_steps.begin(new, uow, instance, plan)


resize_instance.met(move_steps.is_resized)
