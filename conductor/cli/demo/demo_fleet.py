"""The demo's hosts: with SMT and without, one to eight NUMA cells, small and huge pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from conductor.processes.simulated_hosts import Plan, made
from models.messages.hardware.hardware_json import host_to_json
from models.units import MIB_PER_GIB
from workers.hypervisor.ports import Hardware

_GIB: Final = MIB_PER_GIB


@dataclass(frozen=True, slots=True)
class Line:
    """Hosts of one make."""

    name: str
    count: int
    plan: Plan


LINES: Final = (
    Line("alder", 3, Plan(cells=2, cores=8, threads=2, memory_mib=48 * _GIB, huge_mib=24 * _GIB)),
    Line(
        "birch",
        3,
        Plan(cells=2, cores=12, threads=1, memory_mib=48 * _GIB, huge_mib=16 * _GIB),
    ),
    Line(
        "cedar",
        2,
        Plan(
            cells=4,
            cores=8,
            threads=2,
            memory_mib=64 * _GIB,
            huge_mib=16 * _GIB,
            giant_mib=16 * _GIB,
            cells_per_socket=2,
        ),
    ),
    Line(
        "douglas",
        1,
        Plan(
            cells=8,
            cores=4,
            threads=2,
            memory_mib=32 * _GIB,
            shared_cores=1,
            huge_mib=8 * _GIB,
            cells_per_socket=4,
        ),
    ),
    Line("elm", 3, Plan(cells=1, cores=8, threads=2, memory_mib=64 * _GIB)),
    Line("fir", 2, Plan(cells=1, cores=16, threads=1, memory_mib=96 * _GIB, huge_mib=32 * _GIB)),
)


def fleet() -> Mapping[str, Hardware]:
    """Return the hosts by name."""
    return {
        f"{line.name}-{number:02}": made(line.plan)
        for line in LINES
        for number in range(1, line.count + 1)
    }


def fleet_json() -> list[dict[str, object]]:
    """Return the hosts as `up --host` and `hosts import` take them."""
    return [
        {"name": name, "disk_gb": hardware.disk_gb, **host_to_json(hardware.topology)}
        for name, hardware in fleet().items()
    ]
