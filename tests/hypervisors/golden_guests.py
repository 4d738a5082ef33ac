"""Guests of every kind, and the domain XML of each as it was when a person read it last.

python -m tests.hypervisors.golden_guests --write
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from xml.etree.ElementTree import fromstring, indent, tostring

from models.ids import InstanceId
from models.messages.guests.guest_definition import GuestDefinition
from workers.hypervisor.libvirt.domain_xml.host_context import GuestDisk, HostContext
from workers.hypervisor.libvirt.domain_xml.writing import domain_xml

FOLDER: Final = Path(__file__).parent / "golden"
SCHEMA: Final = Path("/usr/share/libvirt/schemas/domain.rng")
HOW: Final = "`python -m tests.hypervisors.golden_guests --write`, and read the difference"
ID: Final = InstanceId("5d0a5b52-6c3d-4c0c-9a55-0f9f4f3d2c11")
KVM: Final = HostContext("kvm", Path("/guests"), {0: 0b0011, 1: 0b1100})
EMULATED: Final = HostContext("qemu", Path("/guests"), {0: 0b0011})
ROOT: Final = GuestDisk("root", Path("/guests/disks/root.qcow2"), "qcow2")
DISKS: Final = (
    ROOT,
    GuestDisk("ephemeral", Path("/guests/disks/ephemeral.qcow2"), "qcow2"),
    GuestDisk("swap", Path("/guests/disks/swap.raw"), "raw"),
)


def guest(vcpus: int = 2, memory_mib: int = 1024, **more: Any) -> GuestDefinition:
    """A guest that has what is said of it and nothing else."""
    fields = {"name": "web-1", "disk_gb": 10, "project_id": "demo", "metadata": {"role": "db"}}
    return GuestDefinition(**{**fields, "vcpus": vcpus, "memory_mib": memory_mib, **more})


def cell(number: int, host_cell: int, memory_mib: int, **more: Any) -> dict[str, Any]:
    """A guest cell in the shape of a placement."""
    empty = {"cpuset": [], "pcpuset": [], "pagesize": None, "cpu_pinning": {}}
    return {
        "id": number,
        "host_cell": host_cell,
        "memory": memory_mib,
        "cpuset_reserved": [],
        **empty,
        **more,
    }


def _with(**hardware: Any) -> GuestDefinition:
    return guest(hardware=hardware)


def _pinned(policy: str | None = None, reserved: Iterable[int] = ()) -> dict[str, Any]:
    pins = {"0": 4, "1": 5}
    one = cell(0, 1, 1024, pcpuset=[0, 1], cpu_pinning=pins, cpuset_reserved=list(reserved))
    return {"cells": [one], "emulator_threads_policy": policy}


TWO_CELLS: Final = {
    "cells": [
        cell(0, 0, 512, pcpuset=[0], cpu_pinning={"0": 8}, pagesize=2048),
        cell(1, 1, 512, cpuset=[1]),
    ]
}
LIMITS: Final = {"total_bytes": 10_000_000, "read_operations": 100, "write_operations": 50}

GUESTS: Final[dict[str, GuestDefinition]] = {
    "plain": guest(),
    "shared-in-a-cell": guest(placement={"cells": [cell(0, 1, 1024, cpuset=[0, 1])]}),
    "pinned": guest(placement=_pinned("share")),
    "emulator-isolated": guest(placement=_pinned("isolate", [6])),
    "two-cells-huge-pages": guest(placement=TWO_CELLS),
    "realtime": guest(placement=_pinned("share"), hardware={"realtime_vcpus": "1", "pmu": False}),
    "locked-and-limited": _with(
        locked_memory=True,
        cpu_share={"shares": 512, "quota_us": 50_000, "period_us": 100_000},
        disk_limits=LIMITS,
    ),
    "cpu-topology-and-mask": guest(
        vcpus=8,
        hardware={"cpu_topology": {"sockets": 2, "cores": 2, "threads": 2}, "pmu": True},
    ),
    "hidden-hypervisor": _with(hide_hypervisor=True),
    "old-machine": _with(machine_type="pc", disk_bus="ide", firmware="bios", boot_menu=True),
    "uefi": _with(firmware="uefi"),
    "secure-boot-and-tpm": _with(
        firmware="uefi", secure_boot=True, tpm={"version": "2.0", "model": "tpm-crb"}
    ),
    "every-device": _with(
        watchdog="reset",
        random_numbers={"rate_bytes": 1024, "rate_period_ms": 500},
        serial_ports=3,
        video="vga",
        video_memory_mib=32,
        pointer="usbtablet",
        sound="ich9",
        guest_agent=True,
        packed_ring=True,
        discard=True,
    ),
    "scsi-disks": _with(disk_bus="scsi", scsi_controller="virtio-scsi", packed_ring=True),
    "sata-disks-no-serial": _with(disk_bus="sata", serial_ports=0, video="none"),
    "windows": _with(clock="localtime", hpet=False, hyperv=True),
    "odd-words": guest(
        name='a <b> & "c" ünïcode\n\x01end', metadata={"k<": "v\x02]]>", "line": "a\nb"}
    ),
}


def xml_of(name: str) -> str:
    """The domain of a guest in the set, as it is handed to libvirt."""
    swap = name in ("every-device", "scsi-disks", "sata-disks-no-serial")
    return domain_xml(ID, GUESTS[name], KVM, DISKS if swap else (ROOT,))


def text_of(xml: str) -> str:
    """XML laid out to be read and compared."""
    root = fromstring(xml)  # it is our own
    indent(root)
    return tostring(root, encoding="unicode") + "\n"


def path_of(name: str) -> Path:
    """The golden file of a guest in the set."""
    return FOLDER / f"{name}.xml"


def why_not_validated() -> str | None:
    """Why XML cannot be compared with libvirt's schema on this machine, None where it can."""
    if shutil.which("xmllint") is None or not SCHEMA.exists():
        return "no xmllint, or no schemas of libvirt: deploy/hypervisor/install"
    return None


def complaints(texts: Iterable[str]) -> str:
    """What libvirt's schema says against domains, empty where nothing."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, text in enumerate(texts):
            paths.append(Path(folder) / f"{number}.xml")
            paths[-1].write_text(text)
        command = ["xmllint", "--noout", "--relaxng", str(SCHEMA), *map(str, paths)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return "" if done.returncode == 0 else done.stderr[-4000:]


def main() -> None:
    """Write every file anew."""
    FOLDER.mkdir(exist_ok=True)
    for name in GUESTS:
        path_of(name).write_text(text_of(xml_of(name)))


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    main()
