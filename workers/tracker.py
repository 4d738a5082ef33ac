"""The resource tracker: what the guests of a host use of it, and which more it cannot hold.

The database decides where guests go, over-commit included. The tracker refuses only what the
hardware contradicts: CPUs, NUMA cells or pages that are not there, or that another guest holds
for itself. All of it is values and pure functions; `Tracker` at the end is the one shell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

import os_resource_classes as rc

from models.errors import ConductorError, HostRefused, Unreachable
from models.hardware import FrozenMap, HostCell, HostTopology, PlacedCell, Placement
from models.hardware.accounting import claim, release, without_use
from models.ids import InstanceId
from models.messages.base import parse
from models.messages.guests.guest_definition import GuestDefinition
from models.messages.hardware.hardware_json import placement_from_json
from models.messages.hardware.hardware_shapes import PlacementShape
from models.messages.internal import Reservation
from models.units import KIB_PER_MIB
from workers.hypervisor.ports import GuestDomain, Hardware


@dataclass(frozen=True, slots=True)
class Guest:
    """What one guest uses; `placement` is None where it has none, or one that cannot be true."""

    instance_id: InstanceId
    vcpus: int
    memory_mib: int
    disk_gb: int
    placement: Placement | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a host cannot hold a guest."""

    code: str
    message: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def error(self) -> HostRefused:
        """Return the refusal as the error that sends the guest to another host."""
        return HostRefused(self.code, self.message, **self.data)


@dataclass(frozen=True, slots=True)
class Tracked:
    """The guests of a host; `degraded` names those whose accounting is wrong, and why.

    `topology` carries only what guests hold for themselves: dedicated CPUs, devices, and the
    memory of guests with a page size or dedicated CPUs. What is shared may be over-committed.
    """

    hardware: Hardware
    topology: HostTopology
    guests: Mapping[str, Guest]
    degraded: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Usage:
    """One resource class of a host; every number is 0 or more."""

    capacity: int
    reserved: int
    used: int

    @property
    def overcommit(self) -> int:
        """Return by how much use exceeds what is there for guests."""
        return max(0, self.used - max(0, self.capacity - self.reserved))


def empty(hardware: Hardware) -> Tracked:
    """Return a host without guests."""
    return Tracked(hardware, without_use(hardware.topology), FrozenMap({}), FrozenMap({}))


def guest_of(instance_id: InstanceId, spec: GuestDefinition) -> Guest:
    """Return what a spec uses; raise `Rejected` when its placement is malformed."""
    placement = None
    if spec.placement is not None:
        placement = placement_from_json(parse(PlacementShape, spec.placement).model_dump())
    return Guest(instance_id, spec.vcpus, spec.memory_mib, spec.disk_gb, placement)


def refusal(tracked: Tracked, guest: Guest) -> Refusal | None:
    """Return why the host cannot hold one more guest, None when it can."""
    topology = tracked.hardware.topology
    cpus = sum(_online(cell) for cell in topology.cells)
    memory_mib = sum(cell.memory_mib for cell in topology.cells)
    for what, need, have in (
        ("vcpus", guest.vcpus, cpus),
        ("memory_mib", guest.memory_mib, memory_mib),
        ("disk_gb", guest.disk_gb, tracked.hardware.disk_gb),
    ):
        if need > have:
            message = f"{what} is {need}: the host has {have} in all"
            return Refusal("host_too_small", message, {"what": what, "need": need, "have": have})
    return _contradiction(tracked.topology, guest.placement) if guest.placement else None


def with_guest(tracked: Tracked, guest: Guest) -> Tracked:
    """Return the host with one more guest; what `refusal` objects to must not be added."""
    topology = tracked.topology
    if guest.placement is not None:
        topology = claim(topology, _exclusive_part(guest.placement))
    guests = FrozenMap({**tracked.guests, guest.instance_id: guest})
    return Tracked(tracked.hardware, topology, guests, tracked.degraded)


def without_guest(tracked: Tracked, instance_id: InstanceId) -> Tracked:
    """Return the host without a guest; one that is not there changes nothing."""
    guest = tracked.guests.get(instance_id)
    if guest is None:
        return tracked
    topology = tracked.topology
    if guest.placement is not None:
        topology = release(topology, _exclusive_part(guest.placement))
    return Tracked(
        tracked.hardware,
        topology,
        FrozenMap(_less(tracked.guests, instance_id)),
        FrozenMap(_less(tracked.degraded, instance_id)),
    )


def audited(
    hardware: Hardware, domains: Iterable[GuestDomain], expected: Iterable[Guest] = ()
) -> Tracked:
    """Return the host as its domains say, powered off or not, ours or not.

    `expected` are guests being made that may not be among the domains yet, or not yet as they
    will be. A domain that cannot be read, or that contradicts those before it, is listed as
    degraded, still counts its memory and disk where they are known, and keeps no other from
    being counted.
    """
    tracked = empty(hardware)
    for domain in domains:
        tracked = with_domain(tracked, domain)
    for guest in expected:
        others = without_guest(tracked, guest.instance_id)
        if refusal(others, guest) is None:
            tracked = with_guest(others, guest)
    return tracked


def with_domain(tracked: Tracked, domain: GuestDomain) -> Tracked:
    """Return the host with one more guest as the hypervisor has it, degraded where it must be."""
    try:
        return _with_domain(tracked, domain)
    except ConductorError as error:
        return _degraded(tracked, domain, str(error))


def usage(tracked: Tracked, reserved: Reservation) -> dict[str, Usage]:
    """Return capacity, reserved and used of each resource class of the host."""
    cells = tracked.hardware.topology.cells
    guests = tuple(tracked.guests.values())
    shared = sum(cell.shared_cpus.bit_count() for cell in cells)
    dedicated = sum(cell.dedicated_cpus.bit_count() for cell in cells)
    pinned = sum(cell.pinned_cpus.bit_count() for cell in tracked.topology.cells)
    memory_mib = sum(cell.memory_mib for cell in cells)
    return {
        rc.VCPU: Usage(shared, reserved.vcpus, sum(map(_shared_vcpus, guests))),
        rc.PCPU: Usage(dedicated, 0, pinned),
        rc.MEMORY_MB: Usage(memory_mib, reserved.memory_mib, sum(g.memory_mib for g in guests)),
        rc.DISK_GB: Usage(
            tracked.hardware.disk_gb, reserved.disk_gb, sum(g.disk_gb for g in guests)
        ),
    }


AUDIT_TRIES: Final = 3


class Tracker:
    """The tracked state of one host, shared by the threads that work on its guests."""

    def __init__(self, hardware: Hardware) -> None:
        self._lock = Lock()
        self._hardware = hardware
        self._tracked = empty(hardware)
        self._expected: dict[InstanceId, Guest] = {}
        self._changes = 0

    @property
    def tracked(self) -> Tracked:
        """Return the host as it is now."""
        return self._tracked

    def renew(self, hardware: Hardware) -> bool:
        """Count by this hardware from the next audit on; say whether it is not what it was."""
        with self._lock:
            if hardware == self._hardware:
                return False
            self._hardware = hardware
            self._changes += 1
            return True

    def check(self, guest: Guest) -> None:
        """Raise `HostRefused` when the host cannot hold the guest with the others."""
        why_not = refusal(without_guest(self._tracked, guest.instance_id), guest)
        if why_not is not None:
            raise why_not.error()

    def admit(self, guest: Guest) -> None:
        """Count a guest that is about to be made; raise `HostRefused` when it cannot be held.

        It takes the place of what was counted of the same guest before.
        """
        with self._lock:
            self.check(guest)
            others = without_guest(self._tracked, guest.instance_id)
            self._tracked = with_guest(others, guest)
            self._expected[guest.instance_id] = guest
            self._changes += 1

    def settle(self, instance_id: InstanceId, domain: Callable[[], GuestDomain | None]) -> None:
        """Count a guest, on which the work has ended, as `domain` says that it is now.

        Where `domain` raises `Unreachable` the guest is counted as before until the next audit:
        too much use is the safe error.
        """
        with self._lock:
            self._expected.pop(instance_id, None)
            self._changes += 1
        with suppress(Unreachable):
            found = domain()
            with self._lock:
                others = without_guest(self._tracked, instance_id)
                self._tracked = others if found is None else with_domain(others, found)
                self._changes += 1

    def audit(self, domains: Callable[[], tuple[GuestDomain, ...]]) -> tuple[GuestDomain, ...]:
        """Count the host's guests anew from what `domains` returns, and return that.

        What has changed while it was read would be lost or kept by it, so it is then read again,
        and at last left to the next audit: the count goes on being right guest by guest. Never
        read under the lock, since a hypervisor that hangs would hang all work on all guests.
        """
        for _ in range(AUDIT_TRIES):
            with self._lock:
                before = self._changes
            found = domains()
            with self._lock:
                if self._changes == before:
                    self._tracked = audited(self._hardware, found, self._expected.values())
                    break
        return found


def _with_domain(tracked: Tracked, domain: GuestDomain) -> Tracked:
    if domain.spec is None:
        raise HostRefused("domain_unreadable", domain.fault)
    guest = guest_of(domain.instance_id, domain.spec)
    placement = guest.placement
    # It is there: what its memory is short of by now says nothing of whether it can be counted.
    why_not = _contradiction(tracked.topology, placement, drifted=True) if placement else None
    if why_not is not None:
        raise why_not.error()
    return with_guest(tracked, guest)


def _degraded(tracked: Tracked, domain: GuestDomain, why: str) -> Tracked:
    spec = domain.spec
    known = (spec.vcpus, spec.memory_mib, spec.disk_gb) if spec else (0, 0, 0)
    counted = with_guest(tracked, Guest(domain.instance_id, *known))
    degraded = FrozenMap({**tracked.degraded, domain.instance_id: why})
    return Tracked(tracked.hardware, counted.topology, counted.guests, degraded)


def _contradiction(
    topology: HostTopology, placement: Placement, *, drifted: bool = False
) -> Refusal | None:
    """Return what the hardware contradicts of a placement; ordinary memory may have `drifted`."""
    cells = {cell.id: cell for cell in topology.cells}
    for placed in placement.cells:
        cell = cells.get(placed.host_cell)
        why_not = _absent(cell, placed, drifted)
        if why_not is not None:
            return why_not
    try:
        after = claim(topology, _exclusive_part(placement))
    except ConductorError as error:
        return Refusal(error.code, error.message, error.data)
    used = {placed.host_cell for placed in placement.cells}
    overfull = (_overfull(cell, drifted) for cell in after.cells if cell.id in used)
    return next((why for why in overfull if why is not None), None)


def _absent(cell: HostCell | None, placed: PlacedCell, drifted: bool) -> Refusal | None:
    """Return what the placed cell needs and its host cell does not have, whoever uses it."""
    if cell is None:
        message = f"the host has no NUMA cell {placed.host_cell}"
        return Refusal("host_cell_unknown", message, {"host_cell": placed.host_cell})
    need, have = placed.shared_vcpus.bit_count(), cell.shared_cpus.bit_count()
    if need > have:
        return _lacks("shared_cpus_missing", "shared CPUs", cell, (need, have))
    capacity_mib = cell.memory_mib
    if cell.page_pools and placed.page_size_kib is None:
        smallest = min(cell.page_pools, key=lambda pool: pool.size_kib)
        capacity_mib = smallest.total * smallest.size_kib // KIB_PER_MIB
    if placed.memory_mib > capacity_mib and not drifted:
        return _lacks("memory_missing", "MiB of memory", cell, (placed.memory_mib, capacity_mib))
    return None


def _overfull(cell: HostCell, drifted: bool) -> Refusal | None:
    """Return what guests hold for themselves beyond what the host cell has.

    Every start of a machine leaves some MiB more or less in ordinary pages.
    """
    pools = sorted(cell.page_pools, key=lambda pool: pool.size_kib)
    for pool in pools[drifted:]:
        have = max(0, pool.total - pool.reserved)
        if pool.used > have:
            what = f"pages of {pool.size_kib} KiB"
            return _lacks("pages_taken", what, cell, (pool.used, have))
    if not cell.page_pools and not drifted and cell.memory_used_mib > cell.memory_mib:
        numbers = (cell.memory_used_mib, cell.memory_mib)
        return _lacks("memory_taken", "MiB of memory", cell, numbers)
    return None


def _lacks(code: str, what: str, cell: HostCell, need_have: tuple[int, int]) -> Refusal:
    need, have = need_have
    message = f"NUMA cell {cell.id} has {have} {what}, {need} would be held"
    return Refusal(code, message, {"host_cell": cell.id, "need": need, "have": have})


def _exclusive_part(placement: Placement) -> Placement:
    """Return the part of a placement that nobody may share with it."""
    cells = tuple(cell for cell in placement.cells if cell.page_size_kib or _pins(cell))
    return Placement(cells, devices=placement.devices)


def _pins(placed: PlacedCell) -> bool:
    return bool(placed.dedicated_vcpus or placed.allocated_cpus)


def _shared_vcpus(guest: Guest) -> int:
    if guest.placement is None or not guest.placement.cells:
        return guest.vcpus
    return sum(cell.shared_vcpus.bit_count() for cell in guest.placement.cells)


def _online(cell: HostCell) -> int:
    return (cell.shared_cpus | cell.dedicated_cpus).bit_count()


def _less(entries: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {entry: value for entry, value in entries.items() if entry != key}
