"""What a host must not say of itself when it is taken in, and what a person should know of it.

The fitter takes any host that a case describes. One that guests are really put on must not offer a
CPU twice, keep back more pages than it has, or have devices that no flavor can name.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Final

from models.errors import Rejected
from models.hardware import HostTopology, PciPool, format_cpu_list

_NOWHERE: Final = -1
_ALIAS: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_old_style(host: HostTopology) -> bool:
    """Say whether the host offers all its CPUs for both uses: the old style, one set for both."""
    return any(cell.dedicated_cpus for cell in host.cells) and all(
        cell.shared_cpus == cell.dedicated_cpus for cell in host.cells
    )


def sound(host: HostTopology) -> HostTopology:
    """Return the host, devices of one kind on one NUMA cell as one pool.

    A node or socket -1, which is how the kernel says that there is none, becomes None. Raises
    `Rejected`: `cpu_in_both_sets` (but for the old style, where both sets are equal),
    `pages_reserved_exceed_total`, `device_alias_invalid`, `device_cell_unknown`,
    `physnet_invalid`.
    """
    for position, cell in enumerate(host.cells):
        both = cell.shared_cpus & cell.dedicated_cpus
        if both and not is_old_style(host):
            key = f"cells.{position}.pcpuset"
            message = (
                f"{key} has CPU {format_cpu_list(both)}, which is in cpuset too: "
                "a CPU is for shared or for dedicated use"
            )
            raise Rejected("cpu_in_both_sets", message, key=key)
        for pool in cell.page_pools:
            if pool.reserved > pool.total:
                key = f"cells.{position}.mempages"
                message = (
                    f"{key} reserves {pool.reserved} pages of {pool.size_kib} KiB: "
                    f"NUMA cell {cell.id} has {pool.total}"
                )
                raise Rejected("pages_reserved_exceed_total", message, key=key)
        if not all(name.strip() for name in cell.physnets):
            key = f"cells.{position}.network_metadata.physnets"
            raise Rejected("physnet_invalid", f"{key} has an empty name", key=key)
    known = {cell.id for cell in host.cells}
    for position, devices in enumerate(host.pci_pools):
        if devices.numa_node not in (None, _NOWHERE, *known):
            key = f"pci_pools.{position}.numa_node"
            message = f"{key} is {devices.numa_node}: the host has no NUMA cell of this id"
            raise Rejected("device_cell_unknown", message, key=key)
        if not _ALIAS.fullmatch(devices.alias) or devices.alias == "_":
            key = f"pci_pools.{position}"
            message = (
                f"{key} has alias {devices.alias[:40]!r}: 1 to 64 letters, digits, _ and -, in "
                "tags.alias, or made of vendor_id and product_id"
            )
            raise Rejected("device_alias_invalid", message, key=key)
    cells = tuple(replace(cell, socket=_somewhere(cell.socket)) for cell in host.cells)
    pools = (replace(pool, numa_node=_somewhere(pool.numa_node)) for pool in host.pci_pools)
    return HostTopology(cells, _merged(pools))


def _somewhere(place: int | None) -> int | None:
    return None if place == _NOWHERE else place


def refuse_excess(what: str, kept: int, has: int, unit: str) -> None:
    """Raise `Rejected` (`reserved_exceeds_host`) where a host keeps more for itself than it has."""
    if kept > has:
        message = f"reserved {what} is {kept} {unit}: the host has {has}"
        raise Rejected("reserved_exceeds_host", message.replace("  ", " "), key=f"reserved_{what}")


def remarks_on(host: HostTopology) -> Iterator[str]:
    """Yield what is allowed and may not be meant: CPUs for both uses, cores cut in two."""
    if is_old_style(host):
        cpus = reduce(or_, (cell.dedicated_cpus for cell in host.cells))
        yield (
            f"CPUs {format_cpu_list(cpus)} are in the shared and the dedicated set: "
            "each is offered once, for dedicated use"
        )
        return
    for cell in host.cells:
        offered = cell.shared_cpus, cell.dedicated_cpus
        for core in cell.siblings:
            if any(core & cpus and core & ~cpus for cpus in offered):
                yield (
                    f"threads {format_cpu_list(core)} are one core of NUMA cell {cell.id}, and not "
                    "in one CPU set: whoever has a thread shares the core with others"
                )


def _merged(pools: Iterable[PciPool]) -> tuple[PciPool, ...]:
    together: dict[object, PciPool] = {}
    for pool in pools:
        other = together.get(pool.kind)
        merged = replace(pool, count=pool.count + other.count) if other else pool
        together[pool.kind] = merged
    return tuple(together.values())
