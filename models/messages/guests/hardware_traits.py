"""Which traits a host must have to give its guests what they ask for: one table for both sides.

The names are the field's; it has none of machine types, so theirs are custom. A host that has
`COMPUTE_NODE` names all it gives; any other has not said what it gives, and takes every guest, as
simulated hosts do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from models.messages.guests.virtual_hardware import VirtualHardware

NAMES_ALL: Final = "COMPUTE_NODE"
"""The trait of hosts whose traits name all the virtual hardware that they give."""


def hardware_traits(hardware: VirtualHardware) -> frozenset[str]:
    """Return the traits that what is set here needs of the host."""
    return frozenset(_traits(hardware))


def firmware_trait(firmware: str) -> str:
    """Return the trait of a firmware: bios, uefi."""
    return f"COMPUTE_FIRMWARE_{firmware.upper()}"


def machine_trait(machine_type: str) -> str:
    """Return the trait of a machine type: q35, pc-i440fx-7.2."""
    return f"CUSTOM_MACHINE_TYPE_{re.sub('[^A-Z0-9]', '_', machine_type.upper())}"


def bus_trait(bus: str) -> str:
    """Return the trait of a bus of disks."""
    return f"COMPUTE_STORAGE_BUS_{bus.upper()}"


def video_trait(model: str) -> str:
    """Return the trait of a graphics adapter."""
    return f"COMPUTE_GRAPHICS_MODEL_{model.upper()}"


def interface_trait(model: str) -> str:
    """Return the trait of a network adapter."""
    return f"COMPUTE_NET_VIF_MODEL_{model.upper()}"


def sound_trait(model: str) -> str:
    """Return the trait of a sound card."""
    return f"COMPUTE_SOUND_MODEL_{model.upper()}"


def tpm_version_trait(version: str) -> str:
    """Return the trait of a version of virtual TPMs."""
    return f"COMPUTE_SECURITY_TPM_{version.replace('.', '_')}"


def tpm_model_trait(model: str) -> str:
    """Return the trait of a model of virtual TPMs: tpm-tis, tpm-crb."""
    return f"COMPUTE_SECURITY_{model.upper().replace('-', '_')}"


PACKED_RING: Final = "COMPUTE_NET_VIRTIO_PACKED"
SECURE_BOOT: Final = "COMPUTE_SECURITY_UEFI_SECURE_BOOT"
STATELESS: Final = "COMPUTE_SECURITY_STATELESS_FIRMWARE"


def _traits(hardware: VirtualHardware) -> Iterator[str]:
    for value, trait_of in (
        (hardware.machine_type, machine_trait),
        (hardware.firmware, firmware_trait),
        (hardware.disk_bus, bus_trait),
        (hardware.cdrom_bus, bus_trait),
        (hardware.video, video_trait),
        (hardware.interface, interface_trait),
        (hardware.sound, sound_trait),
    ):
        if value is not None:
            yield trait_of(value)
    for wanted, trait in (
        (hardware.secure_boot, SECURE_BOOT),
        (hardware.stateless_firmware, STATELESS),
        (hardware.packed_ring, PACKED_RING),
    ):
        if wanted:
            yield trait
    if hardware.tpm is not None:
        yield tpm_version_trait(hardware.tpm.version)
        yield tpm_model_trait(hardware.tpm.model)
