"""What virtual hardware a flavor and an image ask for: one function a group of keys (pure).

Where both may say something they have to agree, as `models.hardware.requirements` has it; a value
that nobody can honour is refused by its key. What both leave open the host decides.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any, Final

from models.hardware import Flavor, Image, format_cpu_list
from models.hardware.requirements import device_requirements, memory_requirements
from models.hardware.requirements.cpu_requirements import realtime_cpus
from models.hardware.requirements.cpu_topology import PARTS, best_topology, topology_bounds
from models.hardware.requirements.parsing import (
    agreed_choice,
    agreed_flag,
    flag,
    image_choice,
    whole_number,
    wrong,
)
from models.messages.base import parse
from models.messages.guests.virtual_hardware import (
    CpuShare,
    CpuTopology,
    DiskLimits,
    RandomNumbers,
    TrustedPlatformModule,
    VirtualHardware,
)

NO_IMAGE: Final = Image("")
_ANY_FLAVOR: Final = Flavor("", 1, 1, extra_specs={"hw_video:ram_max_mb": "4096"})
"""So generous that it is never the flavor that an image is refused for."""
MOST_SERIAL_PORTS: Final = 4
"""So many a PC has."""
MOST_DISK_LIMIT: Final = 10**15
"""More QEMU does not count."""
SOUNDS: Final = ("ac97", "es1370", "ich6", "ich9", "pcspk", "sb16", "usb")
DISK_BUSES: Final = ("fdc", "ide", "sata", "scsi", "usb", "virtio")
INTERFACES: Final = ("e1000", "e1000e", "rtl8139", "virtio", "vmxnet3")
VIDEOS: Final = ("bochs", "cirrus", "none", "qxl", "vga", "virtio")
WITH_VIDEO_MEMORY: Final = ("bochs", "cirrus", "qxl", "vga")
_POINTERS: Final = {"usb": "usbtablet", "ps2": "ps2mouse"}
_SCSI: Final = {"virtio-scsi": "virtio-scsi", "lsilogic": "lsilogic", "lsisas1078": "megasas"}
_WATCHDOG: Final = ("disabled", "none", "pause", "poweroff", "reset")
_OLD_MACHINE: Final = "pc"
_OLD_BUSES: Final = ("ide", "fdc")
"""Buses for which a guest gets the older machine type where nobody names one."""
_BUS_KEYS: Final = ("hw_disk_bus", "hw_cdrom_bus")
_OLD: Final = re.compile(r"pc(-i440fx.*|-[0-9].*)?")
_NEW: Final = re.compile(r"(pc-)?q35.*")
_MACHINE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LIMITS: Final = {
    f"quota:disk_{way}_{what}_sec": f"{way}_{field}"
    for way in ("total", "read", "write")
    for what, field in (("bytes", "bytes"), ("iops", "operations"))
}


def hardware_of(flavor: Flavor, image: Image | None) -> VirtualHardware:
    """Return what the guest shall find when it boots; raise `Rejected` for what is no hardware."""
    other = image or NO_IMAGE
    _refuse_tpm_without_version(flavor, other)
    return VirtualHardware(
        **_cpu(flavor, other),
        **_machine(flavor, other),
        **_devices(flavor, other),
        **_screen(flavor, other),
        **_disks(flavor, other),
        **_interfaces(other),
    )


def refuse_flavor_values(flavor: Flavor) -> None:
    """Raise `Rejected` for a value of a flavor with which no guest could be, of whatever image."""
    _refuse_values(flavor, NO_IMAGE)


def refuse_image_values(image: Image) -> None:
    """Raise `Rejected` for a value of an image with which no guest could be, of any flavor."""
    _refuse_values(_ANY_FLAVOR, image)


def _refuse_values(flavor: Flavor, image: Image) -> None:
    # Whether vCPUs can be divided so, realtime and locked memory depend on what the other says.
    topology_bounds(flavor, image)
    _share(flavor)
    _interfaces(image)
    for group in (_machine, _devices, _screen, _disks):
        group(flavor, image)


def _cpu(flavor: Flavor, image: Image) -> dict[str, Any]:
    realtime = realtime_cpus(flavor, image)
    hidden = flag(flavor.extra_specs.get("hw:hide_hypervisor_id"))
    return {
        "cpu_topology": _topology(flavor, image),
        "cpu_share": _share(flavor),
        "realtime_vcpus": None if realtime is None else format_cpu_list(realtime),
        "pmu": device_requirements.pmu(flavor, image),
        "hide_hypervisor": hidden or flag(image.properties.get("img_hide_hypervisor_id")),
        "locked_memory": memory_requirements.locked_memory(flavor, image) or False,
    }


def _topology(flavor: Flavor, image: Image) -> CpuTopology | None:
    """Return the best topology where anybody says anything about it."""
    names = [f"cpu_{most}{part}" for part in PARTS for most in ("", "max_")]
    if not any(
        f"hw:{name}" in flavor.extra_specs or f"hw_{name}" in image.properties for name in names
    ):
        return None
    best = best_topology(flavor.vcpus, topology_bounds(flavor, image))
    return CpuTopology(sockets=best.sockets, cores=best.cores, threads=best.threads)


def _share(flavor: Flavor) -> CpuShare | None:
    shares = _quota(flavor, "quota:cpu_shares", 2, 262_144)
    quota = _quota(flavor, "quota:cpu_quota", 1_000, 2**44)
    period = _quota(flavor, "quota:cpu_period", 1_000, 1_000_000)
    if shares is quota is period is None:
        return None
    return CpuShare(shares=shares, quota_us=quota, period_us=period)


def _machine(flavor: Flavor, image: Image) -> dict[str, Any]:
    architecture = image.properties.get("hw_architecture")
    return {
        "architecture": None if architecture is None else str(architecture).lower(),
        "machine_type": _machine_type(image),
        "boot_menu": agreed_flag("boot_menu", flavor, image) or False,
        **_clock(image),
        **_firmware(flavor, image),
    }


def _clock(image: Image) -> dict[str, Any]:
    """Windows takes the clock of the machine for local time."""
    windows = str(image.properties.get("os_type", "")).strip().lower() == "windows"
    hpet = image.properties.get("hw_time_hpet")
    return {
        "clock": "localtime" if windows else "utc",
        "hpet": None if hpet is None else flag(hpet),
        "hyperv": windows,
    }


def _machine_type(image: Image) -> str | None:
    named = image.properties.get("hw_machine_type")
    if named is not None:
        if not isinstance(named, str) or not _MACHINE.fullmatch(named):
            rule = "it must be letters, digits, '.', '_' and '-'"
            raise wrong("machine_type_invalid", "hw_machine_type", named, rule)
        _refuse_missing_bus(image, named)
        return named
    old = any(image.properties.get(key) in _OLD_BUSES for key in _BUS_KEYS)
    return _OLD_MACHINE if old else None


def _refuse_missing_bus(image: Image, machine: str) -> None:
    for key in _BUS_KEYS:
        if image.properties.get(key) == "ide" and _NEW.fullmatch(machine):
            rule = f"the machine type {machine} has no such bus; {_OLD_MACHINE} has"
            raise wrong("machine_type_conflict", key, "ide", rule)


def _firmware(flavor: Flavor, image: Image) -> dict[str, Any]:
    firmware = image_choice("hw_firmware_type", ("bios", "uefi"), image)
    secure = device_requirements.secure_boot(flavor, image) == "required"
    stateless = flag(image.properties.get("hw_firmware_stateless"))
    if firmware == "bios" and (secure or stateless):
        rule = "secure boot and stateless firmware need uefi"
        raise wrong("firmware_type_conflict", "hw_firmware_type", firmware, rule)
    machine = _machine_type(image)
    if secure and machine is not None and _OLD.fullmatch(machine):
        key = "hw_machine_type" if "hw_machine_type" in image.properties else _old_bus(image)
        rule = f"secure boot needs a machine type other than {machine}, such as q35"
        raise wrong("machine_type_conflict", key, image.properties[key], rule)
    if stateless and firmware is None and not secure:
        rule = "it needs hw_firmware_type uefi"
        raise wrong("firmware_type_conflict", "hw_firmware_stateless", True, rule)
    return {
        "firmware": "uefi" if secure else firmware,
        "secure_boot": secure,
        "stateless_firmware": stateless,
    }


def _old_bus(image: Image) -> str:
    return next(key for key in _BUS_KEYS if image.properties.get(key) in _OLD_BUSES)


def _devices(flavor: Flavor, image: Image) -> dict[str, Any]:
    tpm = device_requirements.tpm(flavor, image)
    watchdog = agreed_choice("watchdog_action", _WATCHDOG, flavor, image)
    return {
        "tpm": parse(TrustedPlatformModule, asdict(tpm)) if tpm else None,
        "watchdog": None if watchdog == "disabled" else watchdog,
        "random_numbers": _random_numbers(flavor, image),
        "serial_ports": _serial_ports(flavor, image),
        "guest_agent": flag(image.properties.get("hw_qemu_guest_agent")),
        "packed_ring": agreed_flag("virtio_packed_ring", flavor, image) or False,
    }


def _refuse_tpm_without_version(flavor: Flavor, image: Image) -> None:
    """A flavor's model asks for a TPM; an image's says only which one its drivers know."""
    model = flavor.extra_specs.get("hw:tpm_model")
    if model and device_requirements.tpm(flavor, image) is None:
        rule = "it needs a version: hw:tpm_version, or hw_tpm_version of the image"
        raise wrong("tpm_model_needs_version", "hw:tpm_model", model, rule)


def _serial_ports(flavor: Flavor, image: Image) -> int:
    ports = device_requirements.serial_ports(flavor, image)
    if ports > MOST_SERIAL_PORTS:
        ours = flavor.extra_specs.get("hw:serial_port_count")
        key = "hw:serial_port_count" if ours == str(ports) else "hw_serial_port_count"
        raise wrong(
            "serial_port_count_invalid", key, ports, f"it must be at most {MOST_SERIAL_PORTS}"
        )
    return ports


def _random_numbers(flavor: Flavor, image: Image) -> RandomNumbers | None:
    """Return the source that the image has drivers for, unless the flavor does not allow it."""
    model = image_choice("hw_rng_model", ("virtio",), image)
    rate = _quota(flavor, "hw_rng:rate_bytes", 1, 4096)
    period = _quota(flavor, "hw_rng:rate_period", 1, 2**31 - 1)
    if model is None or not flag(flavor.extra_specs.get("hw_rng:allowed", "yes")):
        return None
    return RandomNumbers(rate_bytes=rate, rate_period_ms=period or 1_000)


def _screen(flavor: Flavor, image: Image) -> dict[str, Any]:
    model = image_choice("hw_video_model", VIDEOS, image)
    return {
        "video": model,
        "video_memory_mib": _video_memory(flavor, image, model),
        "pointer": _pointer(flavor, image),
        "sound": agreed_choice("sound_model", SOUNDS, flavor, image),
    }


def _video_memory(flavor: Flavor, image: Image, model: str | None) -> int | None:
    """Return what the image asks for, which a flavor has to allow (0 by default)."""
    code, key = "video_ram_invalid", "hw_video_ram"
    allowed = _quota(flavor, "hw_video:ram_max_mb", 0, 4096) or 0
    if key not in image.properties:
        return None
    wanted = whole_number(image.properties[key], code, key, 1)
    if wanted > allowed:
        rule = f"the flavor's hw_video:ram_max_mb allows at most {allowed}"
        raise wrong("video_ram_conflict", key, wanted, rule)
    if model not in WITH_VIDEO_MEMORY:
        rule = f"it needs hw_video_model {', '.join(WITH_VIDEO_MEMORY)}"
        raise wrong(code, key, wanted, rule)
    return wanted


def _pointer(flavor: Flavor, image: Image) -> str | None:
    model = image_choice("hw_pointer_model", tuple(_POINTERS.values()), image)
    bus = agreed_choice("input_bus", tuple(_POINTERS), flavor, image)
    if bus is None:
        return model
    if model not in (None, _POINTERS[bus]):
        rule = f"on the bus {bus} is a {_POINTERS[bus]}"
        raise wrong("pointer_model_conflict", "hw_pointer_model", model, rule)
    return _POINTERS[bus]


def _disks(flavor: Flavor, image: Image) -> dict[str, Any]:
    scsi = image_choice("hw_scsi_model", tuple(_SCSI), image)
    if scsi and not any(image.properties.get(key) == "scsi" for key in _BUS_KEYS):
        raise wrong("scsi_model_invalid", "hw_scsi_model", scsi, "it needs hw_disk_bus scsi")
    return {
        "disk_bus": image_choice("hw_disk_bus", DISK_BUSES, image),
        "cdrom_bus": image_choice("hw_cdrom_bus", DISK_BUSES, image),
        "scsi_controller": _SCSI[scsi] if scsi else None,
        "discard": image_choice("hw_disk_discard", ("ignore", "unmap"), image) == "unmap",
        "disk_limits": _disk_limits(flavor),
    }


def _interfaces(image: Image) -> dict[str, Any]:
    return {"interface": image_choice("hw_vif_model", INTERFACES, image)}


def _disk_limits(flavor: Flavor) -> DiskLimits | None:
    limits = {
        field: limit
        for key, field in _LIMITS.items()
        if (limit := _quota(flavor, key, 0, MOST_DISK_LIMIT)) is not None
    }
    for what in ("bytes", "operations"):
        apart = [way for way in ("read", "write") if f"{way}_{what}" in limits]
        if f"total_{what}" in limits and apart:
            key = next(key for key, field in _LIMITS.items() if field == f"total_{what}")
            rule = f"a limit of {apart[0]} beside it: one or other"
            raise wrong("disk_limits_conflict", key, flavor.extra_specs[key], rule)
    return DiskLimits(**limits) if limits else None


def _quota(flavor: Flavor, key: str, least: int, most: int) -> int | None:
    value = flavor.extra_specs.get(key)
    if value is None:
        return None
    number = whole_number(value, "extra_spec_invalid", key, least)
    if number > most:
        raise wrong("extra_spec_invalid", key, value, f"it must be at most {most}")
    return number
