"""Fences of instructions, and the removals recorded with them: the only proof that a guest may go.

Not knowing a guest is no reason to remove it. What an operation has removed is kept with its fence,
so that a host which was dead meanwhile, or turns up with the guest again, can be told the same
once more; a guest that was made later has a newer fence, and its host refuses.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from conductor.store import Removal, UnitOfWork
from models.errors import Broken


def next_fence(uow: UnitOfWork, instance_id: str) -> int:
    """Return the fence of the next instruction for an instance; raise `Broken` without one."""
    instance = uow.instances.lock(instance_id)
    if instance is None:
        raise Broken("instance_missing", f"instance {instance_id} has no record")
    fence = instance.fence + 1
    uow.instances.save(replace(instance, fence=fence, updated_at=uow.now))
    return fence


def removal_id(instance_id: str, host: str) -> str:
    """Return the id under which a removal is kept: one for an instance and a host, the newest."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{instance_id} removed from {host}"))


def note_removal(
    uow: UnitOfWork, instance_id: str, host: str, operation_id: str, fence: int
) -> None:
    """Keep that an operation has the instance's guest removed from the host under this fence."""
    id_ = removal_id(instance_id, host)
    uow.removals.put(Removal(id_, instance_id, host, operation_id, fence, uow.now))


def removal_of(uow: UnitOfWork, instance_id: str, host: str) -> Removal | None:
    """Return the newest removal of the instance's guest from the host, None if there was none."""
    return uow.removals.get(removal_id(instance_id, host))


def remove_when_back(uow: UnitOfWork, instance_id: str, host: str, operation_id: str) -> None:
    """Have the host remove the instance's guest as soon as it lists it: the instance has left.

    Nothing is sent: the host may be dead. The fence is newer than all that it was ever told.
    """
    note_removal(uow, instance_id, host, operation_id, next_fence(uow, instance_id))
