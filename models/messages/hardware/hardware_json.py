"""Hardware values and the JSON of the contract, both ways.

`*_from_json` of hosts, flavors and images, and `*_of`, take what others wrote: every shape is
checked, and `Rejected` names field, value and rule. The other functions are for what we wrote
ourselves; they are those of `models.messages.hardware.hardware_records`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from models.errors import Rejected
from models.hardware import (
    DEDICATED,
    ISOLATE,
    Flavor,
    GuestCell,
    GuestTopology,
    HostCell,
    HostTopology,
    Image,
    Limits,
    PciRequest,
    Placement,
    cpus_of,
    format_cpu_list,
    mask_of,
)
from models.hardware.accounting import with_siblings
from models.messages.base import Message, rejected
from models.messages.hardware.hardware_records import (
    flavor_from_row,
    flavor_to_json,
    guest_from_json,
    guest_to_json,
    host_from_row,
    host_to_json,
    host_use_to_json,
    image_from_row,
    image_to_json,
    misfit_to_json,
    placement_from_json,
    placement_to_json,
)
from models.messages.hardware.hardware_shapes import (
    FlavorShape,
    GuestShape,
    HostCellShape,
    HostShape,
    ImageShape,
    LimitsShape,
    PciRequestShape,
    PlacementShape,
    Scalar,
)

__all__ = [
    "flavor_from_json",
    "flavor_from_row",
    "flavor_of",
    "flavor_to_json",
    "guest_from_json",
    "guest_of",
    "guest_to_json",
    "host_from_json",
    "host_from_row",
    "host_of",
    "host_to_json",
    "host_use_to_json",
    "image_from_json",
    "image_from_row",
    "image_of",
    "image_to_json",
    "limits_of",
    "misfit_to_json",
    "pci_requests_of",
    "placement_from_json",
    "placement_of",
    "placement_to_json",
]

M = TypeVar("M", bound=Message)


def host_from_json(data: Mapping[str, Any]) -> HostTopology:
    """Return the host that somebody else's JSON describes; raise `Rejected` otherwise."""
    return host_of(_checked(HostShape, data))


def flavor_from_json(data: Mapping[str, Any]) -> Flavor:
    """Return the flavor that somebody else's JSON describes; raise `Rejected` otherwise."""
    return flavor_of(_checked(FlavorShape, data))


def image_from_json(data: Mapping[str, Any]) -> Image:
    """Return the image that somebody else's JSON describes; raise `Rejected` otherwise."""
    return image_of(_checked(ImageShape, data))


def host_of(shape: HostShape) -> HostTopology:
    """Return a host; raise `Rejected` where two cells, cores or pools claim the same thing."""
    # Field by field instead of `model_dump`, which costs as much as making the values.
    host = host_from_row(
        {
            "cells": map(_cell_fields, shape.cells),
            "pci_pools": [{**vars(pool), "tags": _texts(pool.tags)} for pool in shape.pci_pools],
        }
    )
    ids: set[int] = set()
    seen = 0
    for position, cell in enumerate(host.cells):
        if cell.id in ids:
            raise _host_invalid(position, "id", f"{cell.id}: another NUMA cell has the same id")
        ids.add(cell.id)
        cpus = cell.shared_cpus | cell.dedicated_cpus
        if cpus & seen:
            twice = format_cpu_list(cpus & seen)
            raise _host_invalid(position, "cpuset", f"{twice}: a CPU belongs to one NUMA cell")
        seen |= cpus
        _check_cell(position, cell)
    return host


def flavor_of(shape: FlavorShape) -> Flavor:
    """Return a checked flavor as a value."""
    return Flavor(
        shape.name or "",
        shape.vcpus,
        shape.memory_mb,
        shape.root_gb,
        shape.ephemeral_gb,
        shape.swap_mb,
        _texts(shape.extra_specs),
    )


def image_of(shape: ImageShape) -> Image:
    """Return a checked image as a value."""
    return Image(shape.id, shape.name or "", shape.properties)


def limits_of(shape: LimitsShape) -> Limits:
    """Return checked limits as a value."""
    network = shape.network_metadata
    return Limits(
        shape.cpu_allocation_ratio,
        shape.ram_allocation_ratio,
        frozenset(network.physnets) if network else frozenset(),
        network.tunneled if network else False,
    )


def pci_requests_of(shapes: Sequence[PciRequestShape]) -> tuple[PciRequest, ...]:
    """Return checked device requests as values."""
    return tuple(
        PciRequest(
            shape.id or "",
            shape.count,
            tuple(_texts(spec) for spec in shape.spec),
            shape.numa_policy,
        )
        for shape in shapes
    )


def guest_of(shape: GuestShape) -> GuestTopology:
    """Return a ready guest topology; raise `Rejected` where its cells contradict each other."""
    guest = guest_from_json(shape.model_dump())
    ids: set[int] = set()
    seen = 0
    for cell in guest.cells:
        if cell.id in ids:
            raise _guest_invalid(cell, "id", "another guest cell has the same id")
        ids.add(cell.id)
        if cell.page_size_kib == 0:
            raise _guest_invalid(cell, "pagesize", "it is a size in KiB, -1, -2, -3 or null")
        if cell.shared_vcpus and cell.cpu_policy == DEDICATED:
            raise _guest_invalid(cell, "cpuset", "a dedicated guest has no shared vCPUs")
        if cell.dedicated_vcpus and cell.cpu_policy in (None, "shared"):
            raise _guest_invalid(cell, "pcpuset", "a shared guest has no dedicated vCPUs")
        twice = seen & cell.shared_vcpus | seen & cell.dedicated_vcpus
        twice |= cell.shared_vcpus & cell.dedicated_vcpus
        if twice:
            rule = f"vCPUs {format_cpu_list(twice)} are given twice"
            raise _guest_invalid(cell, "cpuset", rule)
        seen |= cell.shared_vcpus | cell.dedicated_vcpus
    if guest.emulator_threads_policy == ISOLATE and guest.cells[0].cpu_policy in (None, "shared"):
        raise _guest_invalid(guest.cells[0], "cpu_policy", "isolated emulator threads pin CPUs")
    return guest


def placement_of(shape: PlacementShape, host: HostTopology) -> Placement:
    """Return a placement to give back to the host.

    Where a cell says that it was isolated but not what was blocked for that, the siblings
    follow from the host, in the old style (shared and dedicated CPUs the same) only.
    """
    data = shape.model_dump()
    cells = {cell.id: cell for cell in host.cells}
    for placed in data["cells"]:
        cell = cells.get(placed["host_cell"])
        if cell is None or placed["cpu_thread_policy"] != ISOLATE or placed["cpuset_blocked"]:
            continue
        if cell.shared_cpus == cell.dedicated_cpus:
            placed["cpuset_blocked"] = _blocked(cell, placed)
    return placement_from_json(data)


def _cell_fields(cell: HostCellShape) -> Mapping[str, Any]:
    network = cell.network_metadata
    fields = vars(cell)
    return {**fields, "network_metadata": vars(network)} if network else fields


def _blocked(cell: HostCell, placed: Mapping[str, Any]) -> list[int]:
    used = {*placed["cpu_pinning"].values(), *placed["cpuset_reserved"]}
    cpus = with_siblings(cell, mask_of(used)) & cell.dedicated_cpus
    return [cpu for cpu in cpus_of(cpus) if cpu not in used]


def _checked(shape: type[M], data: Mapping[str, Any]) -> M:
    try:
        return shape.model_validate(data)
    except ValidationError as error:
        raise rejected(error) from None


def _texts(entries: Mapping[str, Scalar]) -> dict[str, str]:
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in entries.items()
    }


def _check_cell(position: int, cell: HostCell) -> None:
    cores = 0
    for core in cell.siblings:
        if core & cores:
            twice = format_cpu_list(core & cores)
            raise _host_invalid(position, "siblings", f"{twice}: a CPU belongs to one core")
        cores |= core
    sizes = [pool.size_kib for pool in cell.page_pools]
    if 0 in sizes or len(set(sizes)) < len(sizes):
        raise _host_invalid(position, "mempages", f"{sizes} KiB: sizes are positive and distinct")


def _host_invalid(position: int, field: str, complaint: str) -> Rejected:
    key = f"cells.{position}.{field}"
    return Rejected("host_invalid", f"{key} has {complaint}", key=key)


def _guest_invalid(cell: GuestCell, field: str, rule: str) -> Rejected:
    key = f"cells.{cell.id}.{field}"
    return Rejected("guest_invalid", f"{key} of the guest is refused: {rule}", key=key)
