"""A host's NUMA topology together with what its guests use of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from models.hardware.cpuset import CpuMask
from models.hardware.frozen_map import FrozenMap


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


DEVICE_CLASS: Final = "CUSTOM_PCI_"
"""Prefix of the resource classes that count devices."""


def device_class(alias: str) -> str:
    """Return the resource class that counts the devices of an alias."""
    return DEVICE_CLASS + alias.upper().replace("-", "_")


@dataclass(frozen=True, slots=True)
class PciPool:
    """Devices of one kind on one NUMA cell; `numa_node` None means unknown to the host.

    `count` are all of them, `used` those that guests have.
    """

    numa_node: int | None
    count: int
    vendor_id: str = ""
    product_id: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    used: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.tags, FrozenMap):
            object.__setattr__(self, "tags", FrozenMap(self.tags))

    @property
    def free(self) -> int:
        """Return the devices nobody uses; never negative, even when fewer are left than used."""
        return max(0, self.count - self.used)

    @property
    def kind(self) -> tuple[object, ...]:
        """Return what tells this pool of a host from its others."""
        return self.numa_node, self.vendor_id, self.product_id, self.tags

    @property
    def alias(self) -> str:
        """Return the name that flavors ask for these devices by: a tag, else vendor_product."""
        return self.tags.get("alias") or f"{self.vendor_id}_{self.product_id}"

    @property
    def resource_class(self) -> str:
        """Return the resource class that counts these devices."""
        return device_class(self.alias)


@dataclass(frozen=True, slots=True)
class PciRequest:
    """A number of devices, each matching one of the alternative specs.

    `numa_policy` is required, preferred, legacy, socket, or None for legacy. With a
    `resource_class` only the pools that it counts match, whatever the specs.
    """

    id: str
    count: int
    spec: tuple[Mapping[str, str], ...] = ()
    numa_policy: str | None = None
    resource_class: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "spec", tuple(FrozenMap(row) for row in self.spec))


@dataclass(frozen=True, slots=True)
class HostTopology:
    """The NUMA cells of one host, in the host's order, and its devices."""

    cells: tuple[HostCell, ...] = ()
    pci_pools: tuple[PciPool, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """How far shared guests may over-commit a NUMA cell, and the networks a guest uses."""

    cpu_allocation_ratio: float = 1.0
    ram_allocation_ratio: float = 1.0
    physnets: frozenset[str] = frozenset()
    tunneled: bool = False
