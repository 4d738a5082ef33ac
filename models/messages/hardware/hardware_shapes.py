"""The JSON of hosts, flavors, images, guests and placements as others write it, checked.

Only what comes from outside passes here; what we wrote ourselves is read by the `*_from_row`
functions of `models.messages.hardware.hardware_json`, which cost a fraction.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from models.hardware import HIGHEST_CPU
from models.hardware.requirements.numa_requirements import MOST_GUEST_CELLS
from models.messages.base import Message
from models.messages.catalogue import Count

MOST_HOST_CELLS = 1024
"""What Linux can count; it bounds what the answer to one line can hold."""

Place = Annotated[int, Field(ge=-1, le=2**31 - 1)]
"""A number that the kernel gives a socket or a node; -1 is where it has none."""

CpuNumber = Annotated[int, Field(ge=0, le=HIGHEST_CPU)]
CpuNumbers = list[CpuNumber]
PageCounts = Annotated[
    list[Annotated[int, Field(ge=0, le=2**53)]], Field(min_length=4, max_length=4)
]
Ratio = Annotated[float, Field(ge=0, allow_inf_nan=False)]
CpuPolicy = Literal["shared", "dedicated", "mixed"]
ThreadPolicy = Literal["prefer", "require", "isolate"]
EmulatorPolicy = Literal["share", "isolate"]
Scalar = str | int | float | bool


class NetworkShape(Message):
    """Networks local to a host cell, or wanted by a guest."""

    physnets: list[str] = []
    tunneled: bool = False


class HostCellShape(Message):
    """One NUMA cell of a host; `memory` is MiB, a pool is [size_kib, total, used, reserved]."""

    id: Count
    socket: Place | None = None
    cpuset: CpuNumbers
    pcpuset: CpuNumbers = []
    memory: Count
    siblings: list[CpuNumbers] = []
    mempages: list[PageCounts] = []
    cpu_usage: Count = 0
    memory_usage: Count = 0
    pinned_cpus: CpuNumbers = []
    network_metadata: NetworkShape | None = None


class PciPoolShape(Message):
    """Devices of one kind on one NUMA cell, `used` of them taken."""

    numa_node: Place | None = None
    count: Count
    vendor_id: str = ""
    product_id: str = ""
    tags: dict[str, Scalar] = {}
    used: Count = 0


class HostShape(Message):
    """A host; `disk_gb` belongs to the simulated hypervisor and is not the fitter's."""

    cells: Annotated[list[HostCellShape], Field(max_length=MOST_HOST_CELLS)]
    pci_pools: list[PciPoolShape] = []
    disk_gb: Count | None = None


class FlavorShape(Message):
    """A flavor as the commands take it; extra specs may be written as JSON scalars."""

    name: str | None = None
    vcpus: Annotated[int, Field(ge=1, le=4096)]
    memory_mb: Annotated[int, Field(ge=1, le=2**31 - 1)]
    root_gb: Count = 0
    ephemeral_gb: Count = 0
    swap_mb: Count = 0
    extra_specs: dict[str, Scalar] = {}


class ImageShape(Message):
    """An image; what its properties mean is decided with the flavor, not here."""

    id: str = ""
    name: str | None = None
    properties: dict[str, Any] = {}
    min_disk_gb: Count = 0
    min_memory_mb: Count = 0


class LimitsShape(Message):
    """How far shared guests may over-commit, and the networks the guest uses."""

    cpu_allocation_ratio: Ratio = 1.0
    ram_allocation_ratio: Ratio = 1.0
    network_metadata: NetworkShape | None = None


class PciRequestShape(Message):
    """Devices asked for: `count` of them, each matching one of `spec`."""

    id: str | None = None
    count: Annotated[int, Field(ge=1, le=4096)] = 1
    spec: list[dict[str, Scalar]] = []
    numa_policy: Literal["required", "preferred", "legacy", "socket"] | None = None


PciRequestShapes = Annotated[list[PciRequestShape], Field(max_length=256)]


class GuestCellShape(Message):
    """One NUMA cell of a ready guest topology."""

    id: Count
    cpuset: CpuNumbers = []
    pcpuset: CpuNumbers = []
    memory: Count
    pagesize: Annotated[int, Field(ge=-3, le=2**40)] | None = None
    cpu_policy: CpuPolicy | None = None
    cpu_thread_policy: ThreadPolicy | None = None


class GuestShape(Message):
    """A guest topology that needs no flavor and image."""

    cells: Annotated[list[GuestCellShape], Field(min_length=1, max_length=MOST_GUEST_CELLS)]
    emulator_threads_policy: EmulatorPolicy | None = None


class PlacedCellShape(Message):
    """A guest cell on its host cell; `cpu_thread_policy` tells what isolation blocked."""

    id: Count
    host_cell: Count
    cpuset: CpuNumbers = []
    pcpuset: CpuNumbers = []
    memory: Count
    pagesize: Annotated[int, Field(ge=1, le=2**40)] | None = None
    cpu_pinning: dict[Annotated[str, Field(pattern=r"^\d{1,5}$")], CpuNumber] = {}
    cpuset_reserved: CpuNumbers = []
    cpuset_blocked: CpuNumbers = []
    cpu_policy: CpuPolicy | None = None
    cpu_thread_policy: ThreadPolicy | None = None


class PlacedDevicesShape(Message):
    """Devices taken of one pool of the host."""

    numa_node: int | None = None
    vendor_id: str = ""
    product_id: str = ""
    tags: dict[str, str] = {}
    count: Annotated[int, Field(ge=1)]


class PlacementShape(Message):
    """A placement to give back."""

    cells: list[PlacedCellShape]
    devices: list[PlacedDevicesShape] = []
    emulator_threads_policy: EmulatorPolicy | None = None
