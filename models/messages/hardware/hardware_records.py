"""Hardware values as the JSON of the contract, and back where we wrote it ourselves.

Plain and fast: rows and messages pass here on every decision. What others wrote goes through
`models.messages.hardware.hardware_json`, which checks it first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from models.hardware import (
    Flavor,
    GuestCell,
    GuestTopology,
    HostCell,
    HostTopology,
    Image,
    ImageSource,
    Misfit,
    PagePool,
    PciPool,
    PlacedCell,
    PlacedDevices,
    Placement,
    cpus_of,
    mask_of,
)
from models.json_types import JsonDict


def host_from_row(data: Mapping[str, Any]) -> HostTopology:
    """Return the host that `host_to_json` wrote; nothing is checked."""
    return HostTopology(
        tuple(_host_cell(cell) for cell in data["cells"]),
        tuple(_pci_pool(pool) for pool in data.get("pci_pools", ())),
    )


def flavor_from_row(data: Mapping[str, Any]) -> Flavor:
    """Return the flavor that `flavor_to_json` wrote; nothing is checked."""
    return Flavor(
        data["name"],
        data["vcpus"],
        data["memory_mb"],
        data.get("root_gb", 0),
        data.get("ephemeral_gb", 0),
        data.get("swap_mb", 0),
        data.get("extra_specs", {}),
    )


def image_from_row(data: Mapping[str, Any]) -> Image:
    """Return the image that `image_to_json` wrote; nothing is checked."""
    return Image(
        data["id"],
        data.get("name") or "",
        data.get("properties", {}),
        data.get("min_memory_mb", 0),
        data.get("min_disk_gb", 0),
        data.get("on_volume", False),
        ImageSource(**data["source"]) if data.get("source") else None,
    )


def guest_from_json(data: Mapping[str, Any]) -> GuestTopology:
    """Return the guest topology that `guest_to_json` wrote, cells ordered by id."""
    cells = sorted(data["cells"], key=_id_of)
    return GuestTopology(
        tuple(
            GuestCell(
                cell["id"],
                mask_of(cell["cpuset"]),
                mask_of(cell["pcpuset"]),
                cell["memory"],
                cell.get("pagesize"),
                cell.get("cpu_policy"),
                cell.get("cpu_thread_policy"),
            )
            for cell in cells
        ),
        data.get("emulator_threads_policy"),
    )


def placement_from_json(data: Mapping[str, Any]) -> Placement:
    """Return the placement that `placement_to_json` wrote; nothing is checked."""
    return Placement(
        tuple(_placed_cell(cell) for cell in data["cells"]),
        data.get("emulator_threads_policy"),
        tuple(_placed_devices(entry) for entry in data.get("devices", ())),
    )


def host_to_json(host: HostTopology) -> JsonDict:
    """Return a host with its use, as the contract's `host`."""
    data: JsonDict = {"cells": [_host_cell_json(cell) for cell in host.cells]}
    if host.pci_pools:
        data["pci_pools"] = [
            {
                "numa_node": pool.numa_node,
                "count": pool.count,
                "vendor_id": pool.vendor_id,
                "product_id": pool.product_id,
                "tags": dict(pool.tags),
                **({"used": pool.used} if pool.used else {}),
            }
            for pool in host.pci_pools
        ]
    return data


def host_use_to_json(host: HostTopology) -> JsonDict:
    """Return what is used of each cell of a host, as the contract's `host_after`."""
    return {"cells": [_host_use(cell) for cell in host.cells]}


def flavor_to_json(flavor: Flavor) -> JsonDict:
    """Return a flavor as the contract's `flavor`."""
    return {
        "name": flavor.name,
        "vcpus": flavor.vcpus,
        "memory_mb": flavor.memory_mib,
        "root_gb": flavor.root_gb,
        "ephemeral_gb": flavor.ephemeral_gb,
        "swap_mb": flavor.swap_mib,
        "extra_specs": dict(flavor.extra_specs),
    }


def image_to_json(image: Image) -> JsonDict:
    """Return an image as the contract's `image`, with what else an instance keeps of it."""
    optional = {
        "min_memory_mb": image.min_memory_mib,
        "min_disk_gb": image.min_disk_gib,
        "on_volume": image.on_volume,
        "source": asdict(image.source) if image.source else None,
    }
    rest = {name: value for name, value in optional.items() if value}
    return {"id": image.id, "name": image.name, "properties": _thawed(image.properties), **rest}


def guest_to_json(guest: GuestTopology) -> JsonDict:
    """Return a guest topology as the contract's `guest`; null is what nobody asked for."""
    return {
        "cells": [
            {
                "id": cell.id,
                "cpuset": list(cpus_of(cell.shared_vcpus)),
                "pcpuset": list(cpus_of(cell.dedicated_vcpus)),
                "memory": cell.memory_mib,
                "pagesize": cell.page_size_kib,
                "cpu_policy": cell.cpu_policy,
                "cpu_thread_policy": cell.cpu_thread_policy,
            }
            for cell in guest.cells
        ],
        "emulator_threads_policy": guest.emulator_threads_policy,
    }


def placement_to_json(placement: Placement) -> JsonDict:
    """Return a placement as the contract's `placement`, with all that giving it back needs."""
    data: JsonDict = {"cells": [_placed_cell_json(cell) for cell in placement.cells]}
    if placement.emulator_threads_policy is not None:
        data["emulator_threads_policy"] = placement.emulator_threads_policy
    if placement.devices:
        data["devices"] = [
            {
                "numa_node": device.numa_node,
                "vendor_id": device.vendor_id,
                "product_id": device.product_id,
                "tags": dict(device.tags),
                "count": device.count,
            }
            for device in placement.devices
        ]
    return data


def misfit_to_json(misfit: Misfit) -> JsonDict:
    """Return a misfit as the contract's `misfit`."""
    return {
        "code": misfit.code,
        "message": misfit.message,
        "cells": [
            {
                "guest_cell": cell.guest_cell,
                "host_cell": cell.host_cell,
                "code": cell.code,
                "need": cell.need,
                "have": cell.have,
            }
            for cell in misfit.cells
        ],
    }


def _id_of(cell: Mapping[str, Any]) -> int:
    identity: int = cell["id"]
    return identity


def _host_cell(cell: Mapping[str, Any]) -> HostCell:
    network = cell.get("network_metadata") or {}
    return HostCell(
        cell["id"],
        cell.get("socket"),
        mask_of(cell["cpuset"]),
        mask_of(cell.get("pcpuset", ())),
        cell["memory"],
        # Sorted by their lowest CPU: a core's place in somebody's list decides nothing.
        tuple(sorted(map(mask_of, cell.get("siblings", ())), key=_lowest)),
        tuple(PagePool(*pool) for pool in cell.get("mempages", ())),
        cell.get("cpu_usage", 0),
        cell.get("memory_usage", 0),
        mask_of(cell.get("pinned_cpus", ())),
        frozenset(network.get("physnets", ())),
        network.get("tunneled", False),
    )


def _lowest(mask: int) -> int:
    return mask & -mask


def _host_cell_json(cell: HostCell) -> JsonDict:
    data: JsonDict = {
        "id": cell.id,
        "socket": cell.socket,
        "cpuset": list(cpus_of(cell.shared_cpus)),
        "pcpuset": list(cpus_of(cell.dedicated_cpus)),
        "memory": cell.memory_mib,
        "siblings": [list(cpus_of(core)) for core in cell.siblings],
        **_host_use(cell),
    }
    if cell.physnets or cell.tunneled:
        data["network_metadata"] = {"physnets": sorted(cell.physnets), "tunneled": cell.tunneled}
    return data


def _host_use(cell: HostCell) -> JsonDict:
    return {
        "id": cell.id,
        "cpu_usage": cell.cpu_used,
        "memory_usage": cell.memory_used_mib,
        "mempages": [
            [pool.size_kib, pool.total, pool.used, pool.reserved] for pool in cell.page_pools
        ],
        "pinned_cpus": list(cpus_of(cell.pinned_cpus)),
    }


def _pci_pool(pool: Mapping[str, Any]) -> PciPool:
    return PciPool(
        pool.get("numa_node"),
        pool["count"],
        pool.get("vendor_id", ""),
        pool.get("product_id", ""),
        pool.get("tags", {}),
        pool.get("used", 0),
    )


def _placed_devices(devices: Mapping[str, Any]) -> PlacedDevices:
    return PlacedDevices(
        devices["numa_node"],
        devices["vendor_id"],
        devices["product_id"],
        devices["tags"],
        devices["count"],
    )


def _placed_cell(cell: Mapping[str, Any]) -> PlacedCell:
    pinning = tuple(sorted((int(vcpu), cpu) for vcpu, cpu in cell["cpu_pinning"].items()))
    return PlacedCell(
        cell["id"],
        cell["host_cell"],
        mask_of(cell["cpuset"]),
        mask_of(cell["pcpuset"]),
        cell["memory"],
        cell.get("pagesize"),
        pinning,
        mask_of(cell.get("cpuset_reserved", ())),
        mask_of(cell.get("cpuset_blocked", ())),
    )


def _placed_cell_json(cell: PlacedCell) -> JsonDict:
    data: JsonDict = {
        "id": cell.id,
        "host_cell": cell.host_cell,
        "cpuset": list(cpus_of(cell.shared_vcpus)),
        "pcpuset": list(cpus_of(cell.dedicated_vcpus)),
        "memory": cell.memory_mib,
        "pagesize": cell.page_size_kib,
        "cpu_pinning": {str(vcpu): cpu for vcpu, cpu in cell.pinning},
        "cpuset_reserved": list(cpus_of(cell.reserved_cpus)),
    }
    if cell.blocked_cpus:
        data["cpuset_blocked"] = list(cpus_of(cell.blocked_cpus))
    return data


def _thawed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _thawed(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_thawed(item) for item in value]
    return value
