"""The virtual hardware of a guest: all that flavor and image decide and a guest can see.

What is None or absent is left to the host. A host that cannot give a guest what is set here
refuses it by name; `conductor` asks only hosts whose traits promise it.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from models.messages.base import Message

Amount = Annotated[int, Field(ge=0, le=2**63 - 1)]
Few = Annotated[int, Field(ge=1, le=4096)]
Part = Annotated[int, Field(ge=1, le=2**31 - 1)]
DiskBus: TypeAlias = Literal["virtio", "scsi", "sata", "ide", "usb", "fdc"]
InterfaceModel: TypeAlias = Literal["virtio", "e1000", "e1000e", "rtl8139", "vmxnet3"]
VideoModel: TypeAlias = Literal["virtio", "vga", "cirrus", "bochs", "qxl", "none"]
WatchdogAction: TypeAlias = Literal["none", "pause", "poweroff", "reset"]


class CpuTopology(Message):
    """How the vCPUs look to the guest; the product is their number."""

    sockets: Part = 1
    cores: Part = 1
    threads: Part = 1


class TrustedPlatformModule(Message):
    """A virtual TPM, emulated by the host."""

    version: Literal["1.2", "2.0"]
    model: Literal["tpm-tis", "tpm-crb"]


class RandomNumbers(Message):
    """A source of random numbers; at most `rate_bytes` in every `rate_period_ms`."""

    rate_bytes: Few | None = None
    rate_period_ms: Annotated[int, Field(ge=1, le=2**31 - 1)] = 1000


class CpuShare(Message):
    """What a guest gets of contended CPUs: weight, and microseconds per period for each vCPU."""

    shares: Annotated[int, Field(ge=2, le=262_144)] | None = None
    quota_us: Annotated[int, Field(ge=1_000, le=2**44)] | None = None
    period_us: Annotated[int, Field(ge=1_000, le=1_000_000)] | None = None


class DiskLimits(Message):
    """The most that each disk does in a second; bytes and operations, together or by direction."""

    total_bytes: Amount | None = None
    read_bytes: Amount | None = None
    write_bytes: Amount | None = None
    total_operations: Amount | None = None
    read_operations: Amount | None = None
    write_operations: Amount | None = None


class VirtualHardware(Message):
    """What the guest finds when it boots, apart from sizes, NUMA cells and pins (`placement`).

    `realtime_vcpus` is a list such as `0,2-3`. `discard` passes freed blocks on to the storage.
    `hyperv` are the enlightenments with which Windows runs well; only KVM has them.
    """

    architecture: str | None = None
    machine_type: str | None = None
    firmware: Literal["bios", "uefi"] | None = None
    secure_boot: bool = False
    stateless_firmware: bool = False
    boot_menu: bool = False
    cpu_topology: CpuTopology | None = None
    cpu_share: CpuShare | None = None
    realtime_vcpus: str | None = None
    pmu: bool | None = None
    clock: Literal["utc", "localtime"] = "utc"
    hpet: bool | None = None
    hyperv: bool = False
    hide_hypervisor: bool = False
    locked_memory: bool = False
    tpm: TrustedPlatformModule | None = None
    watchdog: WatchdogAction | None = None
    random_numbers: RandomNumbers | None = None
    serial_ports: Annotated[int, Field(ge=0, le=4)] = 1
    video: VideoModel | None = None
    video_memory_mib: Few | None = None
    pointer: Literal["usbtablet", "ps2mouse"] | None = None
    sound: str | None = None
    disk_bus: DiskBus | None = None
    cdrom_bus: DiskBus | None = None
    scsi_controller: Literal["virtio-scsi", "lsilogic", "megasas"] | None = None
    discard: bool = False
    disk_limits: DiskLimits | None = None
    interface: InterfaceModel | None = None
    guest_agent: bool = False
    packed_ring: bool = False
