"""Places a shape on one host with the fitter: NUMA cells, CPUs, pages and devices."""

from __future__ import annotations

from conductor.placement.resources import MEMORY_MB, VCPU
from conductor.scheduling.request.instance_shape import Shape
from conductor.store import Host
from models.hardware import Limits, Misfit, Placement
from models.hardware.fitting.device_assignment import place_devices_only
from models.hardware.fitting.fit_guest import fit


def place(shape: Shape, host: Host, *, pack: bool) -> Placement | Misfit | None:
    """Return where on the host's NUMA cells, and with which devices, the shape fits, or why not.

    None for a shape that requests neither. Devices of a class that is not in the host's own
    inventory belong to a child provider, and are only counted.
    """
    # A host has a class in its inventory exactly where it has pools of it.
    devices = [device for device in shape.devices if device.resource_class in host.inventory]
    if shape.guest is None:
        return place_devices_only(host.topology, devices)
    limits = limits_of(host)
    return fit(host.topology, shape.guest, limits, pack=pack, pci_requests=devices)


def limits_of(host: Host) -> Limits:
    """Return how far shared guests may over-commit the host's NUMA cells."""
    return Limits(_ratio(host, VCPU), _ratio(host, MEMORY_MB))


def _ratio(host: Host, resource_class: str) -> float:
    inventory = host.inventory.get(resource_class)
    return 1.0 if inventory is None else inventory.ratio
