"""A host's NUMA topology together with what its guests use of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from models.hardware.cpuset import CpuMask
from models.hardware.frozen import FrozenMap


@dataclass(frozen=True, slots=True)
class PagePool:
    """The memory pages of one size in one NUMA cell, counted in pages."""

    size_kib: int
    total: int
    used: int = 0
    reserved: int = 0

    @property
    def free(self) -> int:
        """Return the pages nobody uses; never negative, even when over-committed."""
        return max(0, self.total - self.used - self.reserved)


@dataclass(frozen=True, slots=True)
class HostCell:
    """One NUMA cell of a host: its hardware, then its use.

    `pinned_cpus` are the dedicated CPUs taken by guests, CPUs reserved for emulator
    threads and siblings blocked by old-style isolation included.
    """

    id: int
    socket: int | None = None
    shared_cpus: CpuMask = 0
    dedicated_cpus: CpuMask = 0
    memory_mib: int = 0
    siblings: tuple[CpuMask, ...] = ()
    page_pools: tuple[PagePool, ...] = ()
    cpu_used: int = 0
    memory_used_mib: int = 0
    pinned_cpus: CpuMask = 0
    physnets: frozenset[str] = frozenset()
    tunneled: bool = False

    @property
    def free_cpus(self) -> CpuMask:
        """Return the dedicated CPUs that no guest has taken."""
        return self.dedicated_cpus & ~self.pinned_cpus

    @property
    def free_memory_mib(self) -> int:
        """Return memory not charged to guests; negative when over-committed."""
        return self.memory_mib - self.memory_used_mib

    @property
    def threads_per_core(self) -> int:
        """Return the thread count of the cell's widest core, 1 where no siblings are known."""
        return max(map(int.bit_count, self.siblings), default=1) or 1


@dataclass(frozen=True, slots=True)
class PciPool:
    """Free devices of one kind on one NUMA cell; `numa_node` None means unknown to the host."""

    numa_node: int | None
    count: int
    vendor_id: str = ""
    product_id: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.tags, FrozenMap):
            object.__setattr__(self, "tags", FrozenMap(self.tags))


@dataclass(frozen=True, slots=True)
class PciRequest:
    """A number of devices, each matching one of the alternative specs.

    `numa_policy` is required, preferred, legacy, socket, or None for legacy.
    """

    id: str
    count: int
    spec: tuple[Mapping[str, str], ...] = ()
    numa_policy: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "spec", tuple(FrozenMap(each) for each in self.spec))


@dataclass(frozen=True, slots=True)
class HostTopology:
    """The NUMA cells of one host, in the host's order, and its free devices."""

    cells: tuple[HostCell, ...] = ()
    pci_pools: tuple[PciPool, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """How far shared guests may over-commit a NUMA cell, and the networks a guest uses."""

    cpu_allocation_ratio: float = 1.0
    ram_allocation_ratio: float = 1.0
    physnets: frozenset[str] = frozenset()
    tunneled: bool = False
