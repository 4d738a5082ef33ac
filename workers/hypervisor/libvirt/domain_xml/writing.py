"""From a guest's definition to the XML of its domain."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element, register_namespace, tostring

from models.errors import HostRefused
from models.hardware import Placement
from models.ids import InstanceId
from models.messages.base import parse
from models.messages.guests.guest_definition import GuestDefinition
from models.messages.hardware.hardware_json import placement_from_json
from models.messages.hardware.hardware_shapes import PlacementShape
from workers.hypervisor.libvirt.domain_xml.cpu_and_memory import (
    add_cpu_model,
    add_cpus,
    add_features,
    add_host_nodes,
    add_memory,
    has_enlightenments,
)
from workers.hypervisor.libvirt.domain_xml.devices import add_devices
from workers.hypervisor.libvirt.domain_xml.elements import child, in_one_line
from workers.hypervisor.libvirt.domain_xml.host_context import GuestDisk, HostContext

NAMESPACE: Final = "https://vm-conductor.example/libvirt/1"
DEFINITION: Final = "definition"
WAITING: Final = "waiting"
COPY_NAMESPACE: Final = f"{NAMESPACE}/copy"
"""Of the element that says to which host a guest is being copied."""
CONSOLE_LOG: Final = "console.log"
MACHINE: Final = "q35"
"""The machine type of guests that name none."""

register_namespace("conductor", NAMESPACE)


def domain_xml(
    instance_id: InstanceId,
    guest: GuestDefinition,
    host: HostContext,
    disks: Sequence[GuestDisk],
    *,
    waiting: bool = False,
) -> str:
    """Return the domain: the id is its UUID, the definition travels in an element of ours.

    `waiting` marks a guest that has no memory of its own until a live migration brings it.

    Raises `Rejected` for a malformed placement, `HostRefused` (`hardware_unsupported`) for what no
    domain can have.
    """
    placement = placement_of(guest)
    domain = Element("domain", type=host.virtualization)
    child(domain, "name", domain_name(instance_id))
    child(domain, "uuid", instance_id)
    _add_metadata(domain, guest, waiting=waiting)
    add_memory(domain, guest, placement)
    add_cpus(domain, guest, placement, host)
    add_host_nodes(domain, placement, host)
    _add_boot(domain, guest)
    add_features(domain, guest, host)
    add_cpu_model(domain, guest, placement, host)
    _add_clock(domain, guest, host)
    child(domain, "on_poweroff", "destroy")
    child(domain, "on_reboot", "restart")
    child(domain, "on_crash", "destroy")
    add_devices(domain, guest, disks, str(console_log(host, instance_id)))
    return tostring(domain, encoding="unicode")


def domain_name(instance_id: InstanceId) -> str:
    """Return what libvirt calls a guest of ours: unique, whatever its owner calls it."""
    return f"instance-{instance_id}"


def console_log(host: HostContext, instance_id: InstanceId) -> Path:
    """Return the file with what a guest writes to its first serial port."""
    return host.guests / instance_id / CONSOLE_LOG


def placement_of(guest: GuestDefinition) -> Placement | None:
    """Return where the guest was placed; raise `Rejected` when that is malformed."""
    if guest.placement is None:
        return None
    return placement_from_json(parse(PlacementShape, guest.placement).model_dump())


def _add_metadata(domain: Element, guest: GuestDefinition, *, waiting: bool) -> None:
    title = in_one_line(guest.name)
    if title:
        child(domain, "title", title)
    metadata = child(domain, "metadata")
    ours = child(metadata, f"{{{NAMESPACE}}}{DEFINITION}", json.dumps(guest.to_json()))
    ours.set("project", in_one_line(guest.project_id))
    if waiting:
        ours.set(WAITING, "yes")


def _add_clock(domain: Element, guest: GuestDefinition, host: HostContext) -> None:
    clock = child(domain, "clock", offset=guest.hardware.clock)
    if guest.hardware.hpet is not None:
        child(clock, "timer", name="hpet", present="yes" if guest.hardware.hpet else "no")
    if has_enlightenments(guest, host):
        child(clock, "timer", name="hypervclock", present="yes")


def _add_boot(domain: Element, guest: GuestDefinition) -> None:
    hardware = guest.hardware
    uefi = hardware.firmware == "uefi" or hardware.secure_boot
    if uefi and hardware.firmware == "bios":
        message = "secure_boot is set beside firmware bios: it needs uefi"
        raise HostRefused("hardware_unsupported", message, key="secure_boot")
    boot = child(domain, "os", firmware="efi" if uefi else None)
    machine = hardware.machine_type or MACHINE
    child(boot, "type", "hvm", arch=hardware.architecture or "x86_64", machine=machine)
    if uefi:
        firmware = child(boot, "firmware")
        for name in ("secure-boot", "enrolled-keys"):
            child(firmware, "feature", enabled="yes" if hardware.secure_boot else "no", name=name)
        child(boot, "loader", stateless="yes" if hardware.stateless_firmware else None)
    if hardware.boot_menu:
        child(boot, "bootmenu", enable="yes")
