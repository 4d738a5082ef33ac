"""What a build request means: every name looked up and every rule checked before a write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conductor.operations.steps.image_sources import least_disk_gib, source_of
from conductor.operations.steps.quota_check import Owner, check_quota, size_of
from conductor.operations.steps.unsupported_fields import (
    refuse_fields,
    refuse_flavor_keys,
    refuse_image_keys,
)
from conductor.store import CatalogueEntry, Instance
from models.errors import Rejected
from models.hardware import Flavor, Image
from models.hardware.requirements.guest_requirements import refuse_contradictions
from models.json_types import Json
from models.lifecycle import InstanceState, TaskState
from models.messages.base import parse
from models.messages.catalogue import FlavorBody, ImageBody
from models.messages.guests.requested_hardware import hardware_of
from models.messages.hints import hints_of

if TYPE_CHECKING:
    from conductor.store import UnitOfWork
    from models.messages.requests import BlockDeviceBody, BuildInstances

NO_IMAGE = Image("", "", {})
"""What an instance that boots from volumes has for an image."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A checked build request: copies of flavor and image, and the request as it was."""

    request: BuildInstances
    flavor: Flavor
    image: Image | None

    def instance(self, instance_id: str, now: float) -> Instance:
        """Return the record of one instance of the request, before it has a host."""
        body = self.request.instance
        return Instance(
            id=instance_id,
            name=body.name,
            project_id=self.request.context.project_id,
            user_id=self.request.context.user_id,
            state=InstanceState.BUILDING,
            task_state=TaskState.SCHEDULING,
            flavor=self.flavor,
            image=self.image,
            request_spec=body.to_json(),
            group=body.group,
            availability_zone=body.availability_zone,
            created_at=now,
            updated_at=now,
        )


def spec_of(request: BuildInstances, uow: UnitOfWork) -> Spec:
    """Look everything up that the request names; raise `Rejected` for the first that is wrong."""
    body = request.instance
    flavor = flavor_of(body.flavor, uow, "instance.flavor")
    image_body = image_of(body.image, uow, "instance.image") if body.image is not None else None
    on_volume = _boots_from_volume(body.block_devices, no_image=image_body is None)
    if image_body is None and not on_volume:
        message = "instance.block_devices has none to boot from: no boot_index is 0"
        raise Rejected("nothing_to_boot", message, key="instance.block_devices")
    image = image_value(image_body, on_volume=on_volume) if image_body is not None else None
    refuse_fields(body)
    refuse_flavor_keys(flavor)
    if image is not None:
        refuse_image_keys(image)
    refuse_contradictions(flavor, image or NO_IMAGE)
    hardware_of(flavor, image)
    if image is not None:
        image_fits(image, flavor, "instance.flavor")
    if body.host is not None and uow.hosts.get(body.host) is None:
        raise _unknown("host", "instance.host", body.host)
    _known(uow, "zone", "instance.availability_zone", body.availability_zone)
    _known(uow, "server_group", "instance.group", body.group)
    _companions_known(uow, body.scheduler_hints)
    owner = Owner(request.context.project_id, request.context.user_id)
    check_quota(uow, owner, size_of(flavor, image, request.count))
    return Spec(request, flavor, image)


def flavor_of(named: str | FlavorBody, uow: UnitOfWork, field: str) -> Flavor:
    """Return the flavor that was named or described; `field` is where in the request."""
    body = named
    if isinstance(body, str):
        entry = uow.catalogue.get("flavor", body)
        if entry is None:
            raise _unknown("flavor", field, body)
        body = parse(FlavorBody, entry.body)
    return Flavor(
        name=body.name or "custom",
        vcpus=body.vcpus,
        memory_mib=body.memory_mb,
        root_gb=body.root_gb,
        ephemeral_gb=body.ephemeral_gb,
        swap_mib=body.swap_mb,
        extra_specs=body.extra_specs,
    )


def image_of(named: str | ImageBody, uow: UnitOfWork, field: str) -> ImageBody:
    """Return the image that was named, by id or name, or described."""
    if isinstance(named, ImageBody):
        known = uow.catalogue.get("image", named.id)
        if known is not None and known.body.get("checksum") != named.checksum:
            message = f"{field}.id is {named.id}: the image of this id has other content"
            raise Rejected("image_content_differs", message, key=field)
        return named
    entry = uow.catalogue.get("image", named) or _image_named(named, uow)
    if entry is None:
        raise _unknown("image", field, named)
    return parse(ImageBody, entry.body)


def _image_named(name: str, uow: UnitOfWork) -> CatalogueEntry | None:
    named = [e for e in uow.catalogue.where(kind="image") if e.body.get("name") == name]
    if len(named) > 1:
        raise Rejected(
            "image_ambiguous", f"image is {name}: {len(named)} images have this name; use an id"
        )
    return named[0] if named else None


def image_value(body: ImageBody, *, on_volume: bool = False) -> Image:
    """Return what an instance keeps of an image."""
    return Image(
        body.id,
        body.name or "",
        body.properties,
        body.min_memory_mb,
        least_disk_gib(body),
        on_volume,
        source_of(body),
    )


def _boots_from_volume(devices: Sequence[BlockDeviceBody], *, no_image: bool) -> bool:
    """Say whether one of the devices is the root disk: that with `boot_index` 0.

    Any other is a volume for data. Where none has an index, the first is booted from if there is
    no image.
    """
    indexes = [device.boot_index for device in devices if device.boot_index is not None]
    return 0 in indexes or bool(devices and not indexes and no_image)


def image_fits(image: Image, flavor: Flavor, field: str) -> None:
    """Refuse a flavor that is smaller than the image needs; `field` is its place in the request."""
    if flavor.memory_mib < image.min_memory_mib:
        raise Rejected(
            "flavor_memory_too_small",
            f"flavor memory_mb is {flavor.memory_mib}: image {image.id} needs "
            f"{image.min_memory_mib}",
            key=field,
        )
    if not image.on_volume and 0 < flavor.root_gb < image.min_disk_gib:
        raise Rejected(
            "flavor_disk_too_small",
            f"flavor root_gb is {flavor.root_gb}: image {image.id} needs {image.min_disk_gib}",
            key=field,
        )


def _known(uow: UnitOfWork, kind: str, field: str, name: str | None) -> None:
    if name is not None and uow.catalogue.get(kind, name) is None:
        raise _unknown(kind, field, name)


def _companions_known(uow: UnitOfWork, given: Json) -> None:
    """Refuse hints about instances that never were; one that has been deleted is known."""
    hints = hints_of(given)
    for instance_id in (*hints.with_instances, *hints.apart_from):
        if uow.instances.get(instance_id) is None:
            raise _unknown("instance", "instance.scheduler_hints", instance_id)


def _unknown(kind: str, field: str, name: str) -> Rejected:
    message = f"{field} is {name}: no such {kind.replace('_', ' ')}"
    return Rejected(f"{kind}_unknown", message, key=field)
