"""Limits of a project and of its users, checked under a lock so that parallel requests add up.

A project without a quota has no limits, and what a quota does not name is not limited. Use is
that of all instances that are not deleted, those still being built included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from conductor.placement.requested_amounts import total_requested
from conductor.store import CatalogueEntry, Instance, UnitOfWork
from models.errors import Rejected
from models.hardware import Flavor, Image
from models.messages.base import parse
from models.messages.catalogue import LimitsBody, QuotaBody
from models.units import mib_to_gib_rounded_up

UNLIMITED = -1
SIZES = ("instances", "cores", "memory_mb", "disk_gb")


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose limits count: the project's, and its user's own where one is named."""

    project_id: str
    user_id: str | None = None

    def __str__(self) -> str:
        project = f"project {self.project_id}"
        return project if self.user_id is None else f"user {self.user_id} of {project}"


@dataclass(frozen=True, slots=True)
class Requested:
    """Requested amounts by size and resource class; `counted` where use holds it already."""

    amounts: Mapping[str, int]
    counted: bool = False


def check_quota(uow: UnitOfWork, owner: Owner, requested: Mapping[str, int]) -> None:
    """Raise `Rejected` (`quota_exceeded`) where use and `requested` together exceed a limit.

    Locks the project's quota until the end of the transaction: the next request sees what this
    one added. `requested` is by size and resource class, as `size_of` has it; nothing of something
    is always within its limit, even a limit that was lowered below what is used.
    """
    _check(uow, uow.catalogue.lock("quota", owner.project_id), owner, Requested(requested))


def check_again(uow: UnitOfWork, owner: Owner, requested: Mapping[str, int]) -> None:
    """Raise `Rejected` where use exceeds a limit now; what was requested is part of it already."""
    _check(
        uow, uow.catalogue.get("quota", owner.project_id), owner, Requested(requested, counted=True)
    )


def size_of(flavor: Flavor, image: Image | None, count: int = 1) -> dict[str, int]:
    """Return what so many instances count: `instances`, `cores`, `memory_mb`, `disk_gb`, classes.

    Disk is the flavor's, swap rounded up, also where a volume takes the root disk's place. Classes
    count whoever serves them: what request groups ask is part of it.
    """
    disk_gb = flavor.root_gb + flavor.ephemeral_gb + mib_to_gib_rounded_up(flavor.swap_mib)
    by_class = total_requested(flavor, image)
    sizes = (1, flavor.vcpus, flavor.memory_mib, disk_gb)
    row = {**by_class, **dict(zip(SIZES, sizes, strict=True))}
    return {name: amount * count for name, amount in row.items()}


def growth(instance: Instance, flavor: Flavor) -> dict[str, int]:
    """Return by how much more an instance counts with another flavor; what shrinks is left out."""
    before = size_of(instance.flavor, instance.image)
    after = size_of(flavor, instance.image)
    more = {name: amount - before.get(name, 0) for name, amount in after.items()}
    return {name: amount for name, amount in more.items() if amount > 0}


def _check(
    uow: UnitOfWork, entry: CatalogueEntry | None, owner: Owner, requested: Requested
) -> None:
    if entry is None:
        return
    quota = parse(QuotaBody, entry.body)
    _within(uow, quota, requested, Owner(owner.project_id))
    of_user = quota.users.get(owner.user_id or "")
    if of_user is not None:
        _within(uow, of_user, requested, owner)


def _within(uow: UnitOfWork, limits: LimitsBody, requested: Requested, owner: Owner) -> None:
    every = {**{name: getattr(limits, name) for name in SIZES}, **limits.classes}
    wanted = {
        name: limit
        for name, limit in every.items()
        if limit != UNLIMITED and requested.amounts.get(name, 0) > 0
    }
    if not wanted:
        return
    used = dict(uow.instances.usage(owner.project_id, owner.user_id))
    if wanted.keys() - set(SIZES):
        used.update(_use_by_class(uow, owner))
    for name, limit in wanted.items():
        has, more = used.get(name, 0), 0 if requested.counted else requested.amounts[name]
        if has + more > limit:
            message = f"{name} is {requested.amounts[name]}: {owner} uses {has} of {limit}"
            raise Rejected("quota_exceeded", message, key=name, used=has, limit=limit)


def _use_by_class(uow: UnitOfWork, owner: Owner) -> Mapping[str, int]:
    use: dict[str, int] = {}
    for flavor, image, count in uow.instances.kinds(owner.project_id, owner.user_id):
        for name, amount in size_of(flavor, image, count).items():
            if name not in SIZES:
                use[name] = use.get(name, 0) + amount
    return use
