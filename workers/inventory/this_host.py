"""This machine as a host: what the kernel, libvirt and the file system of its guests say of it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from models.errors import ConductorError, Rejected
from models.hardware import HostCell, HostTopology, PagePool, format_cpu_list
from models.hardware.accounting import without_use
from models.hardware.host_config import HostConfig, ReservedPages
from models.hardware.host_rules import sound
from models.units import KIB_PER_MIB
from workers.hypervisor.ports import GuestDomain, Hardware
from workers.inventory.hardware_findings import CpuSets, host_cell
from workers.inventory.libvirt_traits import cpu_traits, domain_capabilities, machine_traits
from workers.inventory.sysfs import cells_of_tree
from workers.inventory.sysfs_tree import Tree, read_directory
from workers.tracker import guest_of

GIB: Final = 2**30
_PAGES: Final = "reserved_huge_pages"
_IN_MEMORY: Final = ("running", "paused", "nostate")
"""Guests that are so have the pages that they were given; those of others are free again."""
_FLAGS_AT_MOST: Final = 64 * 1024

AllocatedPages: TypeAlias = Mapping[tuple[int, int], int]
"""Pages that guests of ours have now, by NUMA cell and size in KiB."""


@dataclass(frozen=True, slots=True)
class HostReading:
    """What was read of a machine: its sysfs tree, the size of its disk, what its guests may be."""

    tree: Tree
    disk_bytes: int
    traits: frozenset[str] = frozenset()


class Capabilities(NamedTuple):
    """What libvirt answers, as XML: about the host, and about domains as ours are."""

    host: str
    domain: str


@dataclass(frozen=True, slots=True)
class ThisHost:
    """Reads the machine that it runs on, each time anew.

    `guests` is the folder with the disks of guests, of which `image_cache_gib` are for images.
    `capabilities` returns what libvirt says it can do, `domains` the guests that are there;
    `traits` are those that an operator adds.
    """

    config: HostConfig
    guests: Path
    image_cache_gib: int
    capabilities: Callable[[], Capabilities]
    domains: Callable[[], Iterable[GuestDomain]]
    traits: tuple[str, ...] = ()
    root: Path = Path("/")

    def checked(self) -> HostTopology:
        """Return the NUMA cells; raise `Rejected` where settings name what is not there.

        For the start: a CPU that goes later is left out, since guests run by then.
        """
        tree = read_directory(self.root)
        refuse_contradictions(tree, self.config)
        return hardware_of(HostReading(tree, 0), self.config, {}).topology

    def hardware(self) -> Hardware:
        """Return the machine as it is now; equal to the last time while nothing has changed."""
        known = self.capabilities()
        found = domain_capabilities(known.domain)
        machines = machine_traits(known.host, found.architecture)
        reading = HostReading(
            read_directory(self.root),
            shutil.disk_usage(self.guests).total - self.image_cache_gib * GIB,
            found.traits | machines | cpu_traits(found, self._flags()) | set(self.traits),
        )
        # Guests are listed only where somebody uses huge pages: it takes as long as an audit.
        held = pages_allocated(self.domains()) if _has_used_pages(reading.tree) else {}
        return hardware_of(reading, self.config, held)

    def _flags(self) -> frozenset[str]:
        with (self.root / "proc" / "cpuinfo").open("rb") as file:
            text = file.read(_FLAGS_AT_MOST).decode("ascii", errors="replace")
        lines = (line.partition(":") for line in text.splitlines())
        flags = next((value for name, _, value in lines if name.strip() == "flags"), "")
        return frozenset(flags.split())


def hardware_of(reading: HostReading, config: HostConfig, held: AllocatedPages) -> Hardware:
    """Return what a machine offers guests; what a CPU set names and the machine lacks is left out.

    Pages that others have are not offered, those that are reserved neither. The disk is all of
    its file system: `reserved_host_disk_gb` says what the machine needs of it for itself.
    """
    reports, _ = cells_of_tree(reading.tree)
    sets = CpuSets(config.shared_cpus, config.dedicated_cpus)
    cells = tuple(host_cell(report, sets) for report in reports)
    kept = tuple(_without_pages_of_others(cell, config, held) for cell in cells)
    return Hardware(
        without_use(sound(HostTopology(kept))),
        max(0, reading.disk_bytes) // GIB,
        tuple(sorted(reading.traits)),
    )


def refuse_contradictions(tree: Tree, config: HostConfig) -> None:
    """Raise `Rejected` where settings name what the machine has not, or cut a core in two.

    Codes: `cpu_in_both_sets`, `cpu_unknown`, `core_split`, `reserved_pages_unknown`,
    `pages_reserved_exceed_total`.
    """
    reports, _ = cells_of_tree(tree)
    sets = CpuSets(config.shared_cpus, config.dedicated_cpus)
    online = 0
    for report in reports:
        online |= report.cpus
    sets.refuse_unknown(online)
    cells = {report.id: host_cell(report, sets) for report in reports}
    for cell in cells.values():
        _refuse_split_cores(cell)
    for pages in config.reserved_pages:
        _refuse_absent_pages(pages, cells)


def pages_allocated(domains: Iterable[GuestDomain]) -> AllocatedPages:
    """Return the pages that guests have now; one that cannot be read is taken to have none."""
    held: Counter[tuple[int, int]] = Counter()
    for domain in domains:
        if domain.spec is not None and domain.power in _IN_MEMORY:
            held.update(dict(_pages_of(domain)))
    return held


def _has_used_pages(tree: Tree) -> bool:
    reports, _ = cells_of_tree(tree)
    return any(pool.used for report in reports for pool in report.pools)


def _pages_of(domain: GuestDomain) -> Iterator[tuple[tuple[int, int], int]]:
    found: Counter[tuple[int, int]] = Counter()
    try:
        placement = guest_of(domain.instance_id, domain.spec).placement if domain.spec else None
    except ConductorError:
        return
    for cell in placement.cells if placement else ():
        if cell.page_size_kib:
            pages = cell.memory_mib * KIB_PER_MIB // cell.page_size_kib
            found[cell.host_cell, cell.page_size_kib] += pages
    yield from found.items()


def _without_pages_of_others(cell: HostCell, config: HostConfig, held: AllocatedPages) -> HostCell:
    reserved = {
        pages.size_kib: pages.count for pages in config.reserved_pages if pages.node == cell.id
    }

    def kept(pool: PagePool) -> PagePool:
        # The kernel counts use of huge pages only; whom pages are reserved for may have them.
        others = max(0, pool.used - held.get((cell.id, pool.size_kib), 0))
        most = max(others, reserved.get(pool.size_kib, 0))
        return replace(pool, reserved=min(pool.total, most))

    return replace(cell, page_pools=tuple(map(kept, cell.page_pools)))


def _refuse_split_cores(cell: HostCell) -> None:
    for core in cell.siblings:
        apart = core & ~cell.dedicated_cpus
        if apart and core & cell.dedicated_cpus:
            message = (
                f"the dedicated set has CPU {format_cpu_list(core & cell.dedicated_cpus)} without "
                f"CPU {format_cpu_list(apart)}: they are threads of one core of NUMA cell "
                f"{cell.id}, and belong into the set together or not at all"
            )
            raise Rejected("core_split", message, key="dedicated")


def _refuse_absent_pages(pages: ReservedPages, cells: Mapping[int, HostCell]) -> None:
    if pages.node not in cells:
        known = ", ".join(map(str, sorted(cells)))
        message = f"{_PAGES} names NUMA cell {pages.node}: the host has {known}"
        raise Rejected("reserved_pages_unknown", message, key=_PAGES)
    totals = {pool.size_kib: pool.total for pool in cells[pages.node].page_pools}
    where = f"NUMA cell {pages.node}"
    if pages.size_kib not in totals:
        sizes = ", ".join(map(str, totals))
        message = f"{_PAGES} names pages of {pages.size_kib} KiB: {where} has {sizes} KiB"
        raise Rejected("reserved_pages_unknown", message, key=_PAGES)
    if pages.count > totals[pages.size_kib]:
        message = (
            f"{_PAGES} keeps {pages.count} pages of {pages.size_kib} KiB: "
            f"{where} has {totals[pages.size_kib]}"
        )
        raise Rejected("pages_reserved_exceed_total", message, key=_PAGES)
