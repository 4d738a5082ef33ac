"""Which other image an instance may get where it is, with the claim that it has."""

from __future__ import annotations

from conductor.placement.device_classes import device_requests
from conductor.placement.host_requirements import host_requirements_of, isolated_from, unmet_by
from conductor.placement.requested_amounts import total_requested
from conductor.store import UnitOfWork
from models.errors import Rejected
from models.hardware import Flavor, Image
from models.hardware.requirements.numa_constraints import guest_topology


def refuse_other_claim(flavor: Flavor, old: Image, image: Image) -> None:
    """Refuse an image with which the guest would need other cells, pins or devices."""
    if guest_topology(flavor, image) != guest_topology(flavor, old):
        message = f"image is {image.id}: it changes the NUMA topology or pinning of the guest"
        raise Rejected("image_changes_numa", message, key="image")
    requested = total_requested(flavor, image)
    had = device_requests(flavor, old, requested)
    if device_requests(flavor, image, requested) != had:
        message = f"image is {image.id}: it changes where the guest's devices may be"
        raise Rejected("image_changes_devices", message, key="image")


def refuse_unsuited_host(uow: UnitOfWork, host_name: str, flavor: Flavor, image: Image) -> None:
    """Refuse an image whose requirements the host does not meet, as the scheduler would."""
    requirements = host_requirements_of(flavor, image)
    host = uow.hosts.get(host_name)
    unmet = None if host is None else unmet_by(host, requirements)
    if unmet is not None:
        raise Rejected("trait_missing", f"image is {image.id}: {unmet}", key="image")
    apart = isolated_from(uow, host_name, image)
    if apart is not None:
        raise Rejected("isolated", f"image is {image.id}: {apart}", key="image")
