"""What flavor and image ask of the hardware reaches the definition, or is refused by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import os_traits
import pytest

from models.errors import Rejected
from models.hardware import Flavor, Image
from models.hardware.requirements.known_keys import rows
from models.messages.guests.hardware_traits import hardware_traits
from models.messages.guests.requested_hardware import (
    hardware_of,
    refuse_flavor_values,
    refuse_image_values,
)
from models.messages.guests.virtual_hardware import VirtualHardware


def asked(
    specs: Mapping[str, str] | None = None, vcpus: int = 4, **properties: Any
) -> VirtualHardware:
    """Return the hardware of a flavor with these extra specs and an image with these properties."""
    return hardware_of(
        Flavor("f", vcpus, 1024, extra_specs=specs or {}), Image("i", properties=properties)
    )


def differing(hardware: VirtualHardware) -> dict[str, Any]:
    """Return what differs from a guest of which nothing is said."""
    plain = VirtualHardware().to_json()
    return {name: value for name, value in hardware.to_json().items() if value != plain.get(name)}


OF_FLAVORS = [
    ({"hw:cpu_sockets": "2"}, {"cpu_topology": {"sockets": 2, "cores": 2, "threads": 1}}),
    ({"hw:cpu_max_sockets": "1"}, {"cpu_topology": {"sockets": 1, "cores": 4, "threads": 1}}),
    ({"quota:cpu_shares": "512"}, {"cpu_share": {"shares": 512}}),
    ({"quota:cpu_quota": "5000", "quota:cpu_period": "10000"},
     {"cpu_share": {"quota_us": 5000, "period_us": 10000}}),
    ({"hw:cpu_policy": "dedicated", "hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": "^0"},
     {"realtime_vcpus": "1-3"}),
    ({"hw:pmu": "no"}, {"pmu": False}),
    ({"hw:hide_hypervisor_id": "true"}, {"hide_hypervisor": True}),
    ({"hw:locked_memory": "yes", "hw:mem_page_size": "large"}, {"locked_memory": True}),
    ({"hw:boot_menu": "yes"}, {"boot_menu": True}),
    ({"os:secure_boot": "required"}, {"secure_boot": True, "firmware": "uefi"}),
    ({"os:secure_boot": "optional"}, {}),
    ({"hw:tpm_version": "2.0", "hw:tpm_model": "tpm-crb"},
     {"tpm": {"version": "2.0", "model": "tpm-crb"}}),
    ({"hw:watchdog_action": "reset"}, {"watchdog": "reset"}),
    ({"hw:watchdog_action": "disabled"}, {}),
    ({"hw:serial_port_count": "3"}, {"serial_ports": 3}),
    ({"hw:virtio_packed_ring": "true"}, {"packed_ring": True}),
    ({"hw:sound_model": "ich9"}, {"sound": "ich9"}),
    ({"hw:input_bus": "usb"}, {"pointer": "usbtablet"}),
    ({"quota:disk_total_iops_sec": "200", "quota:disk_read_bytes_sec": "1000000"},
     {"disk_limits": {"total_operations": 200, "read_bytes": 1_000_000}}),
]  # fmt: skip
OF_IMAGES = [
    ({"hw_architecture": "x86_64"}, {"architecture": "x86_64"}),
    ({"hw_machine_type": "pc-q35-7.2"}, {"machine_type": "pc-q35-7.2"}),
    ({"hw_firmware_type": "uefi"}, {"firmware": "uefi"}),
    ({"hw_firmware_type": "uefi", "hw_firmware_stateless": True},
     {"firmware": "uefi", "stateless_firmware": True}),
    ({"hw_rng_model": "virtio"}, {"random_numbers": {}}),
    ({"hw_video_model": "vga"}, {"video": "vga"}),
    ({"hw_pointer_model": "ps2mouse"}, {"pointer": "ps2mouse"}),
    ({"hw_disk_bus": "scsi", "hw_scsi_model": "lsisas1078"},
     {"disk_bus": "scsi", "scsi_controller": "megasas"}),
    ({"hw_disk_bus": "ide"}, {"disk_bus": "ide", "machine_type": "pc"}),
    ({"hw_cdrom_bus": "sata"}, {"cdrom_bus": "sata"}),
    ({"hw_disk_discard": "unmap"}, {"discard": True}),
    ({"hw_vif_model": "e1000"}, {"interface": "e1000"}),
    ({"hw_qemu_guest_agent": "yes"}, {"guest_agent": True}),
    ({"img_hide_hypervisor_id": True}, {"hide_hypervisor": True}),
    ({"hw_time_hpet": False}, {"hpet": False}),
    ({"os_type": "windows"}, {"clock": "localtime", "hyperv": True}),
    ({"os_type": "linux"}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("specs", "expected"), OF_FLAVORS)
def test_what_a_flavor_asks_for_is_in_the_definition(
    specs: dict[str, str], expected: dict[str, Any]
) -> None:
    assert _without_defaults(differing(asked(specs))) == expected


@pytest.mark.parametrize(("properties", "expected"), OF_IMAGES)
def test_what_an_image_asks_for_is_in_the_definition(
    properties: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert _without_defaults(differing(asked(**properties))) == expected


def _without_defaults(hardware: dict[str, Any]) -> dict[str, Any]:
    """Leave out of nested values what nobody said."""
    return {
        name: {
            part: inner
            for part, inner in value.items()
            if inner is not None and (name, part) != ("random_numbers", "rate_period_ms")
        }
        if isinstance(value, dict)
        else value
        for name, value in hardware.items()
    }


def test_every_key_that_the_guest_finds_or_its_host_limits_is_tried_here() -> None:
    tried = {key for said, _ in (*OF_FLAVORS, *OF_IMAGES) for key in said}
    either = {key.removeprefix("hw:").removeprefix("hw_").removeprefix("os:") for key in tried}
    elsewhere = {
        *("cpu_cores", "cpu_threads", "cpu_max_cores", "cpu_max_threads"),
        *("video:ram_max_mb", "video_ram", "rng:allowed", "rng:rate_bytes", "rng:rate_period"),
        "secure_boot",
        *(f"quota:disk_{way}_{what}_sec" for way in ("read", "write", "total")
          for what in ("bytes", "iops")),
    }  # fmt: skip
    promised = {
        name.removeprefix("hw:").removeprefix("hw_").removeprefix("os:").removeprefix("os_")
        for _, name, known in rows()
        if known.why.startswith(("the guest finds", "its host limits"))
    }
    assert promised <= either | elsewhere


@pytest.mark.parametrize(
    ("specs", "properties", "key"),
    [
        ({"quota:cpu_shares": "1"}, {}, "quota:cpu_shares"),
        ({"quota:cpu_period": "many"}, {}, "quota:cpu_period"),
        ({"quota:disk_total_iops_sec": "5", "quota:disk_read_iops_sec": "2"}, {},
         "quota:disk_total_iops_sec"),
        ({"quota:disk_read_bytes_sec": "1000000000000001"}, {}, "quota:disk_read_bytes_sec"),
        ({}, {"hw_scsi_model": "virtio-scsi"}, "hw_scsi_model"),
        ({"hw:serial_port_count": "5"}, {}, "hw:serial_port_count"),
        ({"hw:watchdog_action": "explode"}, {}, "hw:watchdog_action"),
        ({"hw:sound_model": "loud"}, {}, "hw:sound_model"),
        ({"hw:input_bus": "virtio"}, {}, "hw:input_bus"),
        ({"hw:input_bus": "usb"}, {"hw_pointer_model": "ps2mouse"}, "hw_pointer_model"),
        ({"hw:tpm_version": "1.2", "hw:tpm_model": "tpm-crb"}, {}, "hw:tpm_model"),
        ({"hw:tpm_model": "tpm-crb"}, {}, "hw:tpm_model"),
        ({"os:secure_boot": "required"}, {"hw_firmware_type": "bios"}, "hw_firmware_type"),
        ({}, {"hw_firmware_stateless": "yes"}, "hw_firmware_stateless"),
        ({}, {"hw_disk_bus": "xen"}, "hw_disk_bus"),
        ({}, {"hw_video_model": "vmvga"}, "hw_video_model"),
        ({}, {"hw_video_model": "vga", "hw_video_ram": 16}, "hw_video_ram"),
        ({"hw_video:ram_max_mb": "64"}, {"hw_video_ram": 16}, "hw_video_ram"),
        ({}, {"hw_machine_type": "pc; rm -rf /"}, "hw_machine_type"),
        ({}, {"hw_vif_model": "netfront"}, "hw_vif_model"),
        ({}, {"hw_scsi_model": "vmpvscsi"}, "hw_scsi_model"),
        ({}, {"hw_rng_model": "chaoskey"}, "hw_rng_model"),
        ({}, {"hw_machine_type": "pc-q35-7.2", "hw_disk_bus": "ide"}, "hw_disk_bus"),
        ({"os:secure_boot": "required"}, {"hw_machine_type": "pc"}, "hw_machine_type"),
        ({"os:secure_boot": "required"}, {"hw_cdrom_bus": "ide"}, "hw_cdrom_bus"),
    ],
)  # fmt: skip
def test_what_no_guest_can_have_is_refused_by_its_key(
    specs: dict[str, str], properties: dict[str, Any], key: str
) -> None:
    with pytest.raises(Rejected) as refused:
        asked(specs, **properties)
    assert refused.value.key == key
    assert refused.value.message.startswith(f"{key} is ")


ALONE = [
    {"hw_cpu_sockets": "3"},
    {"hw_cpu_max_sockets": 1, "hw_cpu_max_cores": 4},
    {"hw_cpu_realtime_mask": "^0"},
    {"hw_locked_memory": "yes"},
    {"hw_video_ram": 64, "hw_video_model": "vga"},
    {"hw_serial_port_count": 3},
]


@pytest.mark.parametrize("properties", ALONE)
def test_an_image_is_not_refused_for_what_depends_on_the_flavor(
    properties: dict[str, Any],
) -> None:
    refuse_image_values(Image("i", properties=properties))


@pytest.mark.parametrize(
    "specs",
    [
        {"hw:cpu_realtime": "yes"},
        {"hw:tpm_model": "tpm-tis"},
        {"hw:locked_memory": "yes"},
        {"hw:cpu_sockets": "3"},
    ],
)
def test_a_flavor_is_not_refused_for_what_depends_on_the_image(specs: dict[str, str]) -> None:
    refuse_flavor_values(Flavor("f", 4, 1024, extra_specs=specs))


def test_a_guest_of_ever_so_many_vcpus_has_its_topology() -> None:
    topology = asked({"hw:cpu_max_cores": "1"}, vcpus=65_536).cpu_topology
    assert topology is not None
    assert topology.sockets * topology.cores * topology.threads == 65_536


def test_video_memory_is_what_the_image_asks_for_within_what_the_flavor_allows() -> None:
    hardware = asked({"hw_video:ram_max_mb": "64"}, hw_video_model="vga", hw_video_ram="16")
    assert (hardware.video, hardware.video_memory_mib) == ("vga", 16)


def test_random_numbers_are_limited_and_forbidden_by_the_flavor() -> None:
    rate = {"hw_rng:rate_bytes": "64", "hw_rng:rate_period": "500"}
    limited = asked(rate, hw_rng_model="virtio").random_numbers
    assert limited is not None
    assert (limited.rate_bytes, limited.rate_period_ms) == (64, 500)
    assert asked({"hw_rng:allowed": "no"}, hw_rng_model="virtio").random_numbers is None


def test_every_trait_of_hardware_is_one_of_the_field() -> None:
    hardware = asked(
        {"hw:tpm_version": "2.0", "hw:sound_model": "ich9", "hw:virtio_packed_ring": "yes"},
        hw_firmware_type="uefi",
        hw_firmware_stateless="yes",
        os_secure_boot="required",
        hw_disk_bus="scsi",
        hw_cdrom_bus="sata",
        hw_video_model="none",
        hw_vif_model="e1000e",
    )
    needed = hardware_traits(hardware)
    assert len(needed) == 11
    assert needed <= set(os_traits.get_traits())
    assert hardware_traits(VirtualHardware()) == frozenset()
