"""Hardware for simulated hosts: read from a file, or made to measure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from models.errors import Rejected
from models.hardware import HostCell, HostTopology, PagePool, mask_of
from models.messages.hardware.hardware_json import host_from_json
from models.units import KIB_PER_MIB, MIB_PER_GIB
from workers.hypervisor.ports import DEFAULT_DISK_GB, Hardware
from workers.inventory.traits import traits_of

SMALL_KIB: Final = 4
HUGE_KIB: Final = 2 * KIB_PER_MIB
GIANT_KIB: Final = MIB_PER_GIB * KIB_PER_MIB


@dataclass(frozen=True, slots=True)
class Plan:
    """What a made host looks like; every NUMA cell is like the others.

    `shared_cores` of each cell run shared guests, the rest dedicated ones. Huge pages are MiB of
    each cell's memory set aside in pages of 2 MiB and of 1 GiB.
    """

    cells: int = 2
    cores: int = 8
    threads: int = 2
    memory_mib: int = 32 * MIB_PER_GIB
    shared_cores: int = 2
    huge_mib: int = 0
    giant_mib: int = 0
    cells_per_socket: int = 1
    disk_gb: int = DEFAULT_DISK_GB


def made(plan: Plan) -> Hardware:
    """Return the hardware of a plan; siblings are numbered n and n + cores, as kernels do."""
    cells = tuple(_cell(plan, number) for number in range(plan.cells))
    return Hardware(HostTopology(cells), plan.disk_gb)


def default_hardware() -> Hardware:
    """Return the hardware of a host for which nobody named any."""
    return made(Plan(huge_mib=16 * MIB_PER_GIB))


def read_hardware(path: Path) -> Hardware:
    """Return the hardware that a HOST.json describes; raise `Rejected` naming what is wrong.

    `traits` beside `cells` are names of traits that the host has.
    """
    data = dict(read_json(path, "topology"))
    traits = traits_of(data.pop("traits", []))
    topology, disk_gb = host_from_json(data), data.get("disk_gb")
    return Hardware(topology, DEFAULT_DISK_GB if disk_gb is None else disk_gb, traits)


def read_json(path: Path, field: str) -> Mapping[str, Any]:
    """Return the JSON object in a file; raise `Rejected` naming the field that names the file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unreadable(field, path, str(error.strerror)) from error
    except (ValueError, RecursionError) as error:
        raise _unreadable(field, path, f"it is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise _unreadable(field, path, "it should be a JSON object")
    return data


def _unreadable(field: str, path: Path, why: str) -> Rejected:
    return Rejected("file_unreadable", f"{field} is {path}: {why}", key=field)


def _cell(plan: Plan, number: int) -> HostCell:
    first = number * plan.cores
    every = plan.cells * plan.cores
    cores = tuple(
        mask_of(core + thread * every for thread in range(plan.threads))
        for core in range(first, first + plan.cores)
    )
    return HostCell(
        id=number,
        socket=number // plan.cells_per_socket,
        shared_cpus=_union(cores[: plan.shared_cores]),
        dedicated_cpus=_union(cores[plan.shared_cores :]),
        memory_mib=plan.memory_mib,
        siblings=cores if plan.threads > 1 else (),
        page_pools=_pools(plan),
    )


def _union(masks: tuple[int, ...]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


def _pools(plan: Plan) -> tuple[PagePool, ...]:
    small_mib = plan.memory_mib - plan.huge_mib - plan.giant_mib
    shares = ((SMALL_KIB, small_mib), (HUGE_KIB, plan.huge_mib), (GIANT_KIB, plan.giant_mib))
    return tuple(PagePool(kib, mib * KIB_PER_MIB // kib) for kib, mib in shares if mib)
