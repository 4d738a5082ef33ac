"""How much of each resource class an instance takes, a host has, and whether it is enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import os_resource_classes

from conductor.placement.device_classes import SPEC, device_requirements, device_totals
from conductor.store import Host, Inventory
from models.errors import Rejected
from models.hardware import ISOLATE, Flavor, FrozenMap, GuestTopology, HostTopology, device_class
from models.messages.internal import Reservation
from models.units import KIB_PER_MIB, mib_to_gib_rounded_up

VCPU: Final = "VCPU"
PCPU: Final = "PCPU"
MEMORY_MB: Final = "MEMORY_MB"
DISK_GB: Final = "DISK_GB"

OVERRIDE: Final = "resources:"
"""Prefix of the extra specs that replace (or, with 0, remove) what the flavor's size asks for."""

MOST: Final = 2**31 - 1
"""The largest amount that is looked at: what a database column of the field holds."""

_STANDARD: Final = frozenset(map(str, os_resource_classes.STANDARDS))


@dataclass(frozen=True, slots=True)
class Ratios:
    """How far a host's resources may be over-committed; dedicated CPUs never are."""

    cpu: float = 4.0
    ram: float = 1.0
    disk: float = 1.0


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a host has no room: `need` more of a class was asked for, `have` is left (never < 0)."""

    resource_class: str
    need: int
    have: int


def amounts(
    flavor: Flavor, guest: GuestTopology | None, *, volume_backed: bool = False
) -> Mapping[str, int]:
    """Return what an instance takes of each resource class; zero amounts are left out.

    CPUs as the guest topology splits them (isolated emulator threads take one dedicated CPU
    more), memory in MiB, disk in whole GiB with swap rounded up; a volume-backed instance has
    no root disk of its own. `resources:CLASS` extra specs win. Raises `Rejected`
    (`resources_invalid`) for an override that is no count, of an unknown class, or that contradicts
    the devices asked for by alias.
    """
    shared, dedicated = _cpus(flavor, guest)
    devices = _devices(flavor)
    overrides = _overrides(flavor)
    for name in devices.keys() & overrides.keys():
        if devices[name] != overrides[name]:
            rule = f"the flavor's {SPEC} asks for {devices[name]} of them"
            raise _invalid(f"{OVERRIDE}{name}", str(overrides[name]), rule)
    root_gb = 0 if volume_backed else flavor.root_gb
    requested = {
        VCPU: shared,
        PCPU: dedicated,
        MEMORY_MB: flavor.memory_mib,
        DISK_GB: root_gb + flavor.ephemeral_gb + mib_to_gib_rounded_up(flavor.swap_mib),
        **devices,
        **overrides,
    }
    return FrozenMap({name: amount for name, amount in requested.items() if amount})


def inventory_of(
    topology: HostTopology, disk_gb: int, reserved: Reservation, ratios: Ratios
) -> Mapping[str, Inventory]:
    """Return what a host offers: CPUs by set, MiB of all NUMA cells, GiB, devices by alias.

    Classes of which it has nothing are left out. The host's own CPUs come out of the shared
    ones: dedicated CPUs are set apart by number. A CPU in both sets, as in the old style, is
    offered once, as a dedicated one. Pages kept back are memory kept back. One guest gets at most
    what the host has of its own, whatever the ratio.
    """
    shared = sum((cell.shared_cpus & ~cell.dedicated_cpus).bit_count() for cell in topology.cells)
    dedicated = sum(cell.dedicated_cpus.bit_count() for cell in topology.cells)
    memory_mib = sum(cell.memory_mib for cell in topology.cells)
    offered = {
        VCPU: _over_committed(shared, reserved.vcpus, ratios.cpu),
        PCPU: Inventory(dedicated),
        MEMORY_MB: _over_committed(
            memory_mib, reserved.memory_mib + _kept_pages_mib(topology), ratios.ram
        ),
        DISK_GB: _over_committed(disk_gb, reserved.disk_gb, ratios.disk),
        **{name: Inventory(count) for name, count in device_totals(topology).items()},
    }
    return {name: inventory for name, inventory in offered.items() if inventory.total}


def _kept_pages_mib(topology: HostTopology) -> int:
    """Return the memory of the pages that the host keeps back, in whole MiB, rounded up."""
    kept_kib = sum(
        pool.reserved * pool.size_kib for cell in topology.cells for pool in cell.page_pools
    )
    return -(-kept_kib // KIB_PER_MIB)


def _over_committed(total: int, reserved: int, ratio: float) -> Inventory:
    """Return an inventory that may be over-committed, and one guest can have as much as it is."""
    # At least 1, as everywhere in the field: where less is left, the capacity is 0.
    return Inventory(total, reserved, ratio, max_unit=max(1, total - reserved))


def capacity(inventory: Inventory) -> int:
    """Return how much can be claimed in all: (total - reserved) * ratio, rounded down."""
    return inventory.capacity


def shortage_of(host: Host, requested: Mapping[str, int]) -> Shortage | None:
    """Return the first class of which the host has too little for `requested`, or nothing.

    One guest never gets more than the inventory's `max_unit`.
    """
    for name, amount in requested.items():
        have = min(left_of(host, name), most_of(host, name))
        if amount > have:
            return Shortage(name, amount, max(0, have))
    return None


def left_of(host: Host, resource_class: str) -> int:
    """Return what can still be claimed of a class; negative where the host is over-committed."""
    inventory = host.inventory.get(resource_class)
    if inventory is None:
        return 0
    return capacity(inventory) - host.used.get(resource_class, 0)


def most_of(host: Host, resource_class: str) -> int:
    """Return what one guest can have of a class on this host, were it empty."""
    inventory = host.inventory.get(resource_class)
    return 0 if inventory is None else inventory.most


def _devices(flavor: Flavor) -> Mapping[str, int]:
    """Return how many devices the flavor's aliases ask of each class; two may share one."""
    total: Counter[str] = Counter()
    for alias, count in device_requirements(flavor).items():
        total[device_class(alias)] += count
    return total


def _cpus(flavor: Flavor, guest: GuestTopology | None) -> tuple[int, int]:
    if guest is None:
        return flavor.vcpus, 0
    shared = sum(cell.shared_vcpus.bit_count() for cell in guest.cells)
    dedicated = sum(cell.dedicated_vcpus.bit_count() for cell in guest.cells)
    return shared, dedicated + (guest.emulator_threads_policy == ISOLATE)


def _overrides(flavor: Flavor) -> Mapping[str, int]:
    found = {}
    for key, value in flavor.extra_specs.items():
        if not key.startswith(OVERRIDE):
            continue
        name = key.removeprefix(OVERRIDE)
        found[name] = class_amount(key, name, value)
    return found


def is_class(name: str) -> bool:
    """Say whether a name can be that of a resource class: a standard or a `CUSTOM_` one."""
    return name in _STANDARD or bool(os_resource_classes.is_custom(name))


def class_amount(key: str, name: str, value: str) -> int:
    """Return the amount that an extra spec asks of a resource class.

    Raises `Rejected` (`resources_invalid`) where it is no count, or the class is none.
    """
    if not is_class(name):
        raise _invalid(key, value, "the class should be a standard or a CUSTOM_ one")
    if not (value.isascii() and value.isdigit() and len(value) <= len(str(MOST))):
        raise _invalid(key, value, f"should be a whole number from 0 to {MOST}")
    return int(value)


def _invalid(key: str, value: str, rule: str) -> Rejected:
    return Rejected("resources_invalid", f"{key} is {value[:40]!r}: {rule}", key=key)
