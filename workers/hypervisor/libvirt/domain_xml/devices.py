"""Disks and other devices of a domain."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase
from typing import Final
from xml.etree.ElementTree import Element

from models.errors import HostRefused
from models.messages.guests.guest_definition import GuestDefinition
from models.messages.guests.requested_hardware import SOUNDS, WITH_VIDEO_MEMORY
from models.messages.guests.virtual_hardware import DiskLimits, VirtualHardware
from models.units import KIB_PER_MIB
from workers.hypervisor.libvirt.domain_xml.elements import child
from workers.hypervisor.libvirt.domain_xml.host_context import GuestDisk

_PREFIXES: Final = {
    "virtio": "vd",
    "scsi": "sd",
    "sata": "sd",
    "usb": "sd",
    "ide": "hd",
    "fdc": "fd",
}
_LIMITS: Final = (
    ("total_bytes_sec", "total_bytes"),
    ("read_bytes_sec", "read_bytes"),
    ("write_bytes_sec", "write_bytes"),
    ("total_iops_sec", "total_operations"),
    ("read_iops_sec", "read_operations"),
    ("write_iops_sec", "write_operations"),
)
_SCSI: Final = {"virtio-scsi": "virtio-scsi", "lsilogic": "lsilogic", "megasas": "lsisas1078"}


def add_devices(
    domain: Element, guest: GuestDefinition, disks: Sequence[GuestDisk], console: str
) -> None:
    """Add every device; `console` is the file that keeps what the guest writes to its console."""
    devices = child(domain, "devices")
    hardware = guest.hardware
    for position, disk in enumerate(disks):
        _add_disk(devices, hardware, disk, position)
    if hardware.disk_bus == "scsi":
        _add_scsi_controller(devices, hardware)
    _add_serial_ports(devices, hardware, console)
    if hardware.guest_agent:
        channel = child(devices, "channel", type="unix")
        child(channel, "target", type="virtio", name="org.qemu.guest_agent.0")
    if hardware.tpm is not None:
        tpm = child(devices, "tpm", model=hardware.tpm.model)
        child(tpm, "backend", type="emulator", version=hardware.tpm.version)
    if hardware.pointer is not None:
        bus = "usb" if hardware.pointer == "usbtablet" else "ps2"
        child(devices, "input", type="tablet" if bus == "usb" else "mouse", bus=bus)
    _add_sound(devices, hardware.sound)
    _add_video(devices, hardware)
    if hardware.watchdog is not None:
        child(devices, "watchdog", model="i6300esb", action=hardware.watchdog)
    _add_random_numbers(devices, hardware)
    child(devices, "memballoon", model="virtio")


def target_of(hardware: VirtualHardware, position: int) -> str:
    """Return what the guest calls its nth disk."""
    return _PREFIXES[hardware.disk_bus or "virtio"] + ascii_lowercase[position]


def _add_disk(devices: Element, hardware: VirtualHardware, disk: GuestDisk, position: int) -> None:
    bus = hardware.disk_bus or "virtio"
    kind = "floppy" if bus == "fdc" else "disk"
    element = child(devices, "disk", type="file", device=kind)
    # O_DIRECT: what the guest has synced is on the disk of the host, whatever happens to the host.
    child(
        element,
        "driver",
        name="qemu",
        type=disk.format,
        cache="none",
        discard="unmap" if hardware.discard else "ignore",
        packed="on" if hardware.packed_ring and bus == "virtio" else None,
    )
    child(element, "source", file=disk.path)
    child(element, "target", dev=target_of(hardware, position), bus=bus)
    if hardware.disk_limits is not None:
        _add_limits(element, hardware.disk_limits)
    child(element, "serial", disk.name)
    if position == 0:
        child(element, "boot", order=1)


def _add_scsi_controller(devices: Element, hardware: VirtualHardware) -> None:
    model = hardware.scsi_controller or "virtio-scsi"
    controller = child(devices, "controller", type="scsi", index=0, model=_SCSI[model])
    if hardware.packed_ring and model == "virtio-scsi":
        child(controller, "driver", packed="on")


def _add_limits(disk: Element, limits: DiskLimits) -> None:
    for what in ("bytes", "operations"):
        apart = getattr(limits, f"read_{what}") or getattr(limits, f"write_{what}")
        if getattr(limits, f"total_{what}") and apart:
            message = (
                f"disk_limits has total_{what} beside read_{what} or write_{what}: one or other"
            )
            raise HostRefused("hardware_unsupported", message, key="disk_limits")
    tune = child(disk, "iotune")
    for tag, field in _LIMITS:
        value = getattr(limits, field)
        if value is not None:
            child(tune, tag, value)


def _add_serial_ports(devices: Element, hardware: VirtualHardware, console: str) -> None:
    for port in range(hardware.serial_ports):
        serial = child(devices, "serial", type="pty")
        if port == 0:
            child(serial, "log", file=console, append="on")
        child(serial, "target", port=port)
    if hardware.serial_ports:
        child(child(devices, "console", type="pty"), "target", type="serial", port=0)


def _add_sound(devices: Element, model: str | None) -> None:
    if model is None:
        return
    if model not in SOUNDS:
        message = f"sound is {model[:40]}: should be one of {', '.join(SOUNDS)}"
        raise HostRefused("hardware_unsupported", message, key="sound")
    child(devices, "sound", model=model)


def _add_video(devices: Element, hardware: VirtualHardware) -> None:
    if hardware.video is None:
        return
    memory_mib = hardware.video_memory_mib
    if memory_mib is not None and hardware.video not in WITH_VIDEO_MEMORY:
        message = f"video_memory_mib is {memory_mib}: {hardware.video} has no memory of its own"
        raise HostRefused("hardware_unsupported", message, key="video_memory_mib")
    memory_kib = None if memory_mib is None else memory_mib * KIB_PER_MIB
    child(child(devices, "video"), "model", type=hardware.video, vram=memory_kib)


def _add_random_numbers(devices: Element, hardware: VirtualHardware) -> None:
    source = hardware.random_numbers
    if source is None:
        return
    rng = child(devices, "rng", model="virtio")
    if source.rate_bytes is not None:
        child(rng, "rate", bytes=source.rate_bytes, period=source.rate_period_ms)
    child(rng, "backend", "/dev/urandom", model="random")
