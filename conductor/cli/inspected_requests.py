"""Request specs that commands ask the scheduler about, without any operation."""

from __future__ import annotations

from dataclasses import dataclass, replace

from conductor.operations.steps.build_request import NO_IMAGE, flavor_of, image_of
from conductor.scheduling.fleet.fleet_snapshot import Fleet
from conductor.scheduling.request.request_spec import RequestSpec
from conductor.scheduling.request.select_hosts import RequestSpecs, with_move_targets
from conductor.store import Instance, UnitOfWork
from models.errors import Rejected
from models.hardware import FrozenMap, Image
from models.lifecycle import InstanceState
from models.messages.internal import HostRequest, SelectHosts, Token

_NOBODY = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class InstanceRequirements:
    """What a new instance would require: a flavor by name, perhaps an image, zone, host, group."""

    flavor: str
    image: str | None = None
    project: str = ""
    zone: str | None = None
    host: str | None = None
    group: str | None = None


def new_instance_spec(
    uow: UnitOfWork, fleet: Fleet, requirements: InstanceRequirements
) -> RequestSpec:
    """Return the request spec of a new instance; raise `Rejected` for an unknown name."""
    flavor = flavor_of(requirements.flavor, uow, "flavor")
    image = NO_IMAGE
    if requirements.image is not None:
        body = image_of(requirements.image, uow, "image")
        image = Image(body.id, body.name or "", body.properties)
    for kind, name in (("zone", requirements.zone), ("server_group", requirements.group)):
        if name is not None and uow.catalogue.get(kind, name) is None:
            what = kind.replace("_", " ")
            raise Rejected(f"{kind}_unknown", f"{what} is {name}: no such {what}", key=kind)
    if requirements.host is not None and fleet.get(requirements.host) is None:
        message = f"host is {requirements.host}: no such host"
        raise Rejected("host_unknown", message, key="host")
    spec = {"availability_zone": requirements.zone, "host": requirements.host}
    instance = Instance(
        id=_NOBODY,
        name="what-if",
        project_id=requirements.project,
        user_id="",
        state=InstanceState.BUILDING,
        flavor=flavor,
        image=image,
        request_spec={key: value for key, value in spec.items() if value is not None},
        group=requirements.group,
        created_at=uow.now,
        updated_at=uow.now,
    )
    return instance_spec(uow, instance)


def instance_spec(
    uow: UnitOfWork, instance: Instance, message: SelectHosts | None = None
) -> RequestSpec:
    """Return the request spec of an instance as if it had no host yet."""
    request = message or _select_hosts(instance.id, _NOBODY, None)
    return RequestSpecs(uow, request).of(replace(instance, host=None, placement=None))


def moving_instance_spec(
    uow: UnitOfWork, instance: Instance, operation_id: str, migration_id: str | None
) -> RequestSpec:
    """Return the request spec of an operation on an instance, without its own allocations."""
    message = _select_hosts(instance.id, operation_id, migration_id)
    moved = with_move_targets(uow, message, {instance.id: instance})[instance.id]
    return replace(instance_spec(uow, moved, message), allocated=FrozenMap({}))


def _select_hosts(instance_id: str, operation_id: str, migration_id: str | None) -> SelectHosts:
    token = Token(operation_id=operation_id, step="look", attempt=1, sequence=0)
    host_request = HostRequest(
        instance_id=instance_id, operation_id=operation_id, migration_id=migration_id
    )
    return SelectHosts(token=token, host_requests=(host_request,))
