"""What flavor and image ask for is what libvirt runs and what the guest says that it sees."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import pytest

from models.hardware import Flavor, Image
from models.ids import InstanceId
from models.messages.guests.guest_copies import CopyTarget
from models.messages.guests.guest_definition import GuestDefinition
from models.messages.guests.requested_hardware import hardware_of
from models.messages.guests.root_disks import RootDisk
from tests.hypervisors.conftest import Host, definition
from tests.hypervisors.requested_keys import KEYS
from tests.limits import wait_for

EVERYTHING = {
    "hw:cpu_sockets": "2",
    "hw:cpu_cores": "1",
    "hw:cpu_threads": "1",
    "hw:hide_hypervisor_id": "yes",
    "hw:boot_menu": "no",
    "hw:tpm_version": "2.0",
    "hw:tpm_model": "tpm-crb",
    "hw:watchdog_action": "reset",
    "hw:serial_port_count": "3",
    "hw:sound_model": "ich9",
    "hw:virtio_packed_ring": "yes",
    "hw_rng:rate_bytes": "512",
    "hw_video:ram_max_mb": "32",
    "quota:disk_total_iops_sec": "5000",
}
DRIVERS = {
    "hw_rng_model": "virtio",
    "hw_video_model": "vga",
    "hw_video_ram": "32",
    "hw_pointer_model": "usbtablet",
    "hw_qemu_guest_agent": "yes",
    "hw_disk_discard": "unmap",
    "hw_time_hpet": "no",
    "hw_firmware_type": "uefi",
}
SHOWN_ELSEWHERE = (
    *("hw:cpu_sockets", "hw:cpu_cores", "hw:cpu_threads", "hw_video:ram_max_mb"),
    "hw_firmware_type",  # libvirt names the file that it has chosen instead
    "hw:hide_hypervisor_id",  # emulation has a flag of the CPU for it
)
WATCHDOG, VGA, SOUND, RANDOM = "8086:25ab", "1234:1111", "8086:293e", "1af4:1044"


@dataclass(frozen=True)
class Seen:
    """A guest that has booted: what it said, and what libvirt says of it."""

    said: str
    domain: Element

    def lines(self, word: str) -> list[str]:
        """What the guest said under a word."""
        return re.findall(rf"^{word} (.*?)\r?$", self.said, re.MULTILINE)

    def pci(self) -> set[str]:
        """The vendor and device of each of its PCI devices."""
        return {line.split("id=")[1] for line in self.lines("PCI")}


def dumped(host: Host, instance_id: InstanceId) -> Element:
    command = ["virsh", "--connect", host.daemon.uri, "dumpxml", instance_id]
    return fromstring(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def requested(specs: dict[str, str], **properties: Any) -> GuestDefinition:
    flavor = Flavor("f", 2, 192, extra_specs=specs)
    hardware = hardware_of(flavor, Image("tiny", properties=properties))
    return definition(vcpus=2, memory_mib=192, hardware=hardware)


def started(host: Host, guest: InstanceId, specs: dict[str, str], **properties: Any) -> None:
    host.hypervisor.spawn(guest, requested(specs, **properties))


def booted(host: Host, guest: InstanceId, specs: dict[str, str], **properties: Any) -> Seen:
    started(host, guest, specs, **properties)
    host.says(guest, r"^READY")
    return Seen(host.said(guest), dumped(host, guest))


def test_a_guest_sees_each_device_that_flavor_and_image_name(
    hosts: list[Host], guest: InstanceId
) -> None:
    seen = booted(hosts[0], guest, EVERYTHING, **DRIVERS)
    assert seen.lines("TOPOLOGY") == ["sockets=2 cores=2"]
    assert seen.lines("SERIAL_PORTS") == ["3"]
    assert seen.lines("TPM") == ["2"]
    assert seen.lines("FIRMWARE") == ["uefi"]
    assert seen.lines("CHANNEL") == ["org.qemu.guest_agent.0"]
    assert "virtio_rng" in seen.lines("RANDOM")[0]
    assert "hypervisor" not in seen.lines("FLAGS")[0].split()
    assert {WATCHDOG, VGA, SOUND, RANDOM} <= seen.pci()
    assert [line.split()[0] for line in seen.lines("DISK")] == ["vda"]
    for key, value in {**EVERYTHING, **DRIVERS}.items():
        if key not in SHOWN_ELSEWHERE:
            assert KEYS[key].shows(seen.domain, value), key
    loader = seen.domain.find("os/loader")
    assert loader is not None
    assert loader.get("type") == "pflash"
    kept = hosts[0].daemon.folder / "lib"
    assert list(kept.rglob(f"*{guest}*"))  # the variables of its firmware, the state of its TPM
    hosts[0].hypervisor.destroy(guest)
    assert not list(kept.rglob(f"*{guest}*"))


def test_a_guest_sees_an_older_machine_with_scsi_disks_and_no_screen(
    hosts: list[Host], guest: InstanceId
) -> None:
    said = {
        "hw_machine_type": "pc",
        "hw_disk_bus": "scsi",
        "hw_scsi_model": "virtio-scsi",
        "hw_video_model": "none",
    }
    seen = booted(hosts[0], guest, {}, **said)
    assert [line.split()[0] for line in seen.lines("DISK")] == ["sda"]
    assert seen.lines("FIRMWARE") == ["bios"]
    assert "8086:1237" in seen.pci()  # the chipset of the machine type pc
    assert not [line for line in seen.lines("PCI") if line.startswith("class=03")]
    assert KEYS["hw_scsi_model"].shows(seen.domain, "virtio-scsi")
    machine = seen.domain.find("os/type")
    assert machine is not None
    assert machine.get("machine", "").startswith("pc-i440fx")


@pytest.mark.parametrize("change", [pytest.param("reshape", marks=pytest.mark.chaos), "rebuild"])
def test_secure_boot_refuses_what_nobody_has_signed_also_where_it_comes_later(
    hosts: list[Host], guest: InstanceId, change: str
) -> None:
    here = hosts[0]
    started(here, guest, {"hw:tpm_version": "2.0"}, hw_firmware_type="uefi")
    here.says(guest, "BdsDxe: starting")
    (state,) = (here.daemon.folder / "lib" / "swtpm" / guest).iterdir()
    (state / "marker").touch()
    secured = requested({"hw:tpm_version": "2.0", "os:secure_boot": "required"})
    getattr(here.hypervisor, change)(guest, secured)
    here.says(guest, "Access Denied|Security Violation")
    loader = dumped(here, guest).find("os/loader")
    assert loader is not None
    assert loader.get("secure") == "yes"
    assert (state / "marker").exists()  # what its TPM has sealed is not lost


@pytest.mark.chaos
def test_a_guest_with_firmware_and_a_tpm_moves_with_both_while_it_runs(
    hosts: list[Host], guest: InstanceId
) -> None:
    source, target = hosts
    wanted = requested(EVERYTHING, **DRIVERS)
    source.hypervisor.spawn(guest, wanted)
    source.says(guest, r"^TICK 2$")
    copied = {"power": "nostate", "root_disk": RootDisk(origin="copy")}
    target.hypervisor.spawn(guest, wanted.model_copy(update=copied))
    destination = target.hypervisor.destination(guest)
    source.hypervisor.copy(guest, CopyTarget(target="B", destination=destination), lambda _: None)
    target.hypervisor.activate(guest)
    left = source.ticks(guest)[-1]
    source.hypervisor.destroy(guest)
    wait_for(lambda: [t for t in target.ticks(guest) if t > left + 1], "the counter to go on")
    (state,) = (target.daemon.folder / "lib" / "swtpm" / guest).iterdir()
    assert list(state.glob("*permall"))
    assert KEYS["hw_video_model"].shows(dumped(target, guest), "vga")
    found = target.hypervisor.domain(guest)
    assert found is not None
    assert found.spec is not None
    assert found.spec.hardware == wanted.hardware
    target.hypervisor.power_off(guest)
    target.hypervisor.power_on(guest)  # and it boots there, with what came
    target.says(guest, r"^TPM 2(.|\n)*^TICK 1$")
