"""What a guest requires of NUMA cells, and the answers: a placement or the reasons why not."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from models.hardware.cpuset import CpuMask
from models.hardware.frozen_map import FrozenMap

SMALL_PAGES: Final = -1
LARGE_PAGES: Final = -2
ANY_PAGES: Final = -3

SHARED: Final = "shared"
DEDICATED: Final = "dedicated"
MIXED: Final = "mixed"

PREFER: Final = "prefer"
REQUIRE: Final = "require"
ISOLATE: Final = "isolate"

SHARE: Final = "share"
"""Emulator threads float over the shared CPUs; ISOLATE gives them a CPU of their own."""


@dataclass(frozen=True, slots=True)
class GuestCell:
    """One NUMA cell as the guest will see it; nothing here names a host's hardware.

    `page_size_kib` is None (not asked), a size in KiB, or one of SMALL_PAGES, LARGE_PAGES,
    ANY_PAGES. A policy is None where none is required.
    """

    id: int
    shared_vcpus: CpuMask
    dedicated_vcpus: CpuMask
    memory_mib: int
    page_size_kib: int | None = None
    cpu_policy: str | None = None
    cpu_thread_policy: str | None = None


@dataclass(frozen=True, slots=True)
class GuestTopology:
    """The NUMA cells a guest asks for, ordered by id."""

    cells: tuple[GuestCell, ...]
    emulator_threads_policy: str | None = None


@dataclass(frozen=True, slots=True)
class PlacedCell:
    """A guest cell on its host cell; holds all that a release needs.

    `pinning` pairs (vCPU, host CPU), sorted by vCPU. `reserved_cpus` run emulator threads.
    `blocked_cpus` are siblings that old-style isolation keeps idle. `page_size_kib` is None
    where the guest requires none: the smallest pool of the host cell is charged then.
    """

    id: int
    host_cell: int
    shared_vcpus: CpuMask
    dedicated_vcpus: CpuMask
    memory_mib: int
    page_size_kib: int | None = None
    pinning: tuple[tuple[int, int], ...] = ()
    reserved_cpus: CpuMask = 0
    blocked_cpus: CpuMask = 0

    @property
    def allocated_cpus(self) -> CpuMask:
        """Return every dedicated host CPU that this cell occupies."""
        cpus = self.reserved_cpus | self.blocked_cpus
        for _, cpu in self.pinning:
            cpus |= 1 << cpu
        return cpus


@dataclass(frozen=True, slots=True)
class PlacedDevices:
    """So many devices of one pool of the host, which the first four fields name."""

    numa_node: int | None
    vendor_id: str
    product_id: str
    tags: Mapping[str, str]
    count: int

    def __post_init__(self) -> None:
        if not isinstance(self.tags, FrozenMap):
            object.__setattr__(self, "tags", FrozenMap(self.tags))

    @property
    def kind(self) -> tuple[object, ...]:
        """Return what tells the pool from the host's others, as `PciPool.kind` does."""
        return self.numa_node, self.vendor_id, self.product_id, self.tags


@dataclass(frozen=True, slots=True)
class Placement:
    """Every guest cell on a host cell of its own, in the guest's order; and the devices taken.

    A guest without NUMA cells that has devices has a placement without cells.
    """

    cells: tuple[PlacedCell, ...]
    emulator_threads_policy: str | None = None
    devices: tuple[PlacedDevices, ...] = ()


@dataclass(frozen=True, slots=True)
class CellMisfit:
    """Why one guest cell cannot use one host cell, with the two numbers that decided it."""

    guest_cell: int
    host_cell: int
    code: str
    need: int
    have: int


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a guest fits nowhere on a host: the deciding rule, and one reason a pair of cells.

    `need` and `have` are the numbers of the deciding rule. Where that is about one guest cell
    alone, `guest_cell` is its id; where it is about devices, `devices` are their names.
    """

    code: str
    message: str
    cells: tuple[CellMisfit, ...] = ()
    need: int = 0
    have: int = 0
    guest_cell: int | None = None
    devices: tuple[str, ...] = ()
