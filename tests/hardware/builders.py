"""Hosts, guests and cases in one line each, so that a test shows only what it is about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from models.hardware import (
    Flavor,
    GuestCell,
    GuestTopology,
    HostCell,
    HostTopology,
    Image,
    PagePool,
    Placement,
    mask_of,
)
from models.hardware.requirements.numa_constraints import guest_topology

GIB = 1024


def cores(*threads: Iterable[int]) -> tuple[int, ...]:
    """Return sibling sets."""
    return tuple(mask_of(core) for core in threads)


def host_cell(number: int = 0, **wanted: Any) -> HostCell:
    """Return a cell of four dedicated CPUs without siblings and 4 GiB, changed as wanted."""
    first = number * 4
    cpus = wanted.pop("cpus", range(first, first + 4))
    memory_mib = wanted.pop("memory_mib", 4 * GIB)
    wanted.setdefault("dedicated_cpus", mask_of(cpus))
    wanted.setdefault("siblings", tuple(1 << cpu for cpu in cpus))
    wanted.setdefault("page_pools", (PagePool(4, memory_mib * 256),))
    return HostCell(number, memory_mib=memory_mib, **wanted)


def host(*cells: HostCell, **wanted: Any) -> HostTopology:
    return HostTopology(cells or (host_cell(),), **wanted)


def sized_host(*gib: int) -> HostTopology:
    """Return a host with one cell of four dedicated CPUs for each size in GiB."""
    return host(*(host_cell(n, memory_mib=size * GIB) for n, size in enumerate(gib)))


def guest_cell(number: int = 0, vcpus: int = 1, **wanted: Any) -> GuestCell:
    """Return a guest cell of 1 GiB whose vCPUs are all dedicated, changed as wanted."""
    first = number * vcpus
    wanted.setdefault("cpu_policy", "dedicated")
    wanted.setdefault("dedicated_vcpus", mask_of(range(first, first + vcpus)))
    wanted.setdefault("shared_vcpus", 0)
    wanted.setdefault("memory_mib", GIB)
    return GuestCell(number, **wanted)


def guest(*cells: GuestCell, emulator: str | None = None) -> GuestTopology:
    return GuestTopology(cells or (guest_cell(),), emulator)


def sized_guest(*gib: int, **wanted: Any) -> GuestTopology:
    """Return a guest with one cell of one dedicated vCPU for each size in GiB."""
    return guest(*(guest_cell(n, memory_mib=size * GIB, **wanted) for n, size in enumerate(gib)))


def pinned_cpus(placement: object) -> list[int]:
    """Return the host CPUs of all vCPUs, sorted; fails on a misfit with its text."""
    assert isinstance(placement, Placement), placement
    return sorted(cpu for cell in placement.cells for _, cpu in cell.pinning)


def host_cells(placement: object) -> list[int]:
    """Return the host cell of each guest cell; fails on a misfit with its text."""
    assert isinstance(placement, Placement), placement
    return [cell.host_cell for cell in placement.cells]


def topology_for(
    extra_specs: dict[str, str] | None = None,
    properties: dict[str, Any] | None = None,
    vcpus: int = 4,
    memory_mib: int = 4096,
) -> GuestTopology | None:
    """Return what a flavor of these extra specs and an image of these properties ask for."""
    flavor = Flavor("f", vcpus, memory_mib, extra_specs=extra_specs or {})
    return guest_topology(flavor, Image("i", properties=properties or {}))
