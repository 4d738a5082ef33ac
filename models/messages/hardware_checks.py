"""What no single field of a host, guest or placement can say about itself."""

from __future__ import annotations

from models.errors import Rejected
from models.hardware.cpuset import format_cpu_list
from models.hardware.topology import HostCell, HostTopology


def check_host(host: HostTopology) -> None:
    """Raise `Rejected` (`host_invalid`) where two cells, cores or pools claim the same thing."""
    ids: set[int] = set()
    seen = 0
    for position, cell in enumerate(host.cells):
        if cell.id in ids:
            raise _invalid(position, "id", f"{cell.id}: another NUMA cell has the same id")
        ids.add(cell.id)
        cpus = cell.shared_cpus | cell.dedicated_cpus
        if cpus & seen:
            twice = format_cpu_list(cpus & seen)
            raise _invalid(position, "cpuset", f"{twice}: a CPU belongs to one NUMA cell")
        seen |= cpus
        _check_cell(position, cell)


def _check_cell(position: int, cell: HostCell) -> None:
    cores = 0
    for core in cell.siblings:
        if core & cores:
            twice = format_cpu_list(core & cores)
            raise _invalid(position, "siblings", f"{twice}: a CPU belongs to one core")
        cores |= core
    sizes = [pool.size_kib for pool in cell.page_pools]
    if 0 in sizes or len(set(sizes)) < len(sizes):
        raise _invalid(position, "mempages", f"{sizes} KiB: sizes are positive and distinct")


def _invalid(position: int, field: str, complaint: str) -> Rejected:
    key = f"cells.{position}.{field}"
    return Rejected("host_invalid", f"{key} has {complaint}", key=key)
