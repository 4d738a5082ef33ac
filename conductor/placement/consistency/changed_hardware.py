"""A host whose hardware is not what it was: taken in with its guests, unless that contradicts them.

Other amounts, more CPUs, other memory are taken as they are: what guests hold stays valid. What
guests hold and the host has no more closes it, and the reason names them; what it reported waits
with it, until an operator enables the host or it reports again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from conductor.store import Allocation, Host, Inventory, Migration, UnitOfWork
from models.errors import Rejected
from models.hardware import (
    HostCell,
    HostTopology,
    PlacedCell,
    Placement,
    accounting,
    format_cpu_list,
)
from models.lifecycle import UNFINISHED
from models.messages.hardware.hardware_json import host_from_row, host_to_json

CHANGED_HARDWARE: Final = "hardware changed"
_NAMED: Final = 5
_WAY_OUT: Final = "what it reports now contradicts no guest any more: `hosts enable` takes it in"


@dataclass(frozen=True, slots=True)
class PlacedGuest:
    """What a consumer is allocated of one host's NUMA cells and devices; `who` is the instance."""

    who: str
    placement: Placement


def with_reported(
    host: Host,
    topology: HostTopology,
    inventory: Mapping[str, Inventory],
    held: Sequence[PlacedGuest],
) -> Host:
    """Return the host with this hardware and the use its guests make of it, or closed.

    Closed it keeps what it had, and what was reported beside it. The caller counts the version.
    """
    after, lost = _with_guests(topology, held)
    lost += [
        f"it has no more {name}"
        for name, amount in sorted(host.used.items())
        if amount and name not in inventory
    ]
    if lost:
        reported = {
            "hardware": host_to_json(topology),
            "inventory": {name: asdict(item) for name, item in inventory.items()},
        }
        return replace(host, degraded=_reason(lost), reported=reported)
    degraded = None if is_changed(host) else host.degraded
    return replace(host, topology=after, inventory=inventory, degraded=degraded, reported=None)


def is_changed(host: Host) -> bool:
    """Say whether a host is closed because of its hardware."""
    return (host.degraded or "").startswith(CHANGED_HARDWARE)


def reconsidered(uow: UnitOfWork, host: Host) -> Host:
    """Return a (locked) host with what it reported last taken in, if that is possible by now."""
    if host.reported is None:
        return host
    topology, inventory = _reported(host.reported)
    return with_reported(host, topology, inventory, guests_on(uow, host.name))


def refresh_reason(uow: UnitOfWork, name: str) -> None:
    """Let the reason of a host that is closed for its hardware name the guests that it is about."""
    seen = uow.hosts.get(name)
    if seen is None or seen.reported is None:
        return
    host = uow.hosts.lock(name)
    if host is None or host.reported is None:
        return
    after = reconsidered(uow, host)
    reason = after.degraded if after.reported else f"{CHANGED_HARDWARE}: {_WAY_OUT}"
    if reason != host.degraded and is_changed(host):
        uow.hosts.save(replace(host, degraded=reason, version=host.version + 1))


def guests_on(uow: UnitOfWork, name: str) -> list[PlacedGuest]:
    """Return the placements of all who hold something of a host: instances and moves."""
    allocations = uow.allocations.where(provider=name)
    ids = [allocation.consumer_id for allocation in allocations]
    instances = {item.id: item for item in uow.instances.where(id=ids)} if ids else {}
    moves = {migration.id: migration for migration in uow.migrations.where(id=ids)} if ids else {}
    coming = {
        migration.instance_id: migration
        for migration in (
            uow.migrations.where(instance_id=ids, state=list(UNFINISHED)) if ids else ()
        )
        if migration.target == name
        and not migration.switched
        and uow.allocations.where(consumer_id=migration.id)
    }
    found = []
    for allocation in allocations:
        who, placement = _placement_of(allocation, moves, coming)
        if placement is None and allocation.consumer_id in instances and who not in coming:
            instance = instances[allocation.consumer_id]
            placement = instance.placement if instance.host == name else None
        if placement is not None:
            found.append(PlacedGuest(who, placement))
    return found


def _placement_of(
    held: Allocation, moves: Mapping[str, Migration], coming: Mapping[str, Migration]
) -> tuple[str, Placement | None]:
    move = moves.get(held.consumer_id)
    if move is not None:
        placement = move.source_placement if move.source == held.provider else None
        return move.instance_id, placement
    target = coming.get(held.consumer_id)
    return held.consumer_id, target.target_placement if target else None


def _with_guests(
    topology: HostTopology, held: Iterable[PlacedGuest]
) -> tuple[HostTopology, list[str]]:
    after = accounting.without_use(topology)
    lost: dict[str, list[str]] = {}
    for allocation in held:
        missing = list(_missing(after, allocation.placement))
        if not missing:
            try:
                after = accounting.claim(after, allocation.placement)
            except Rejected as error:
                missing = [error.message]
        if missing:
            lost.setdefault(allocation.who, []).extend(missing)
    # What is short of is nobody's fault alone: whoever has some of it is named.
    for cell in after.cells:
        for text in _short(cell):
            for allocation in held:
                if any(placed.host_cell == cell.id for placed in allocation.placement.cells):
                    lost.setdefault(allocation.who, []).append(text)
    return after, [f"{who} has lost {', '.join(dict.fromkeys(what))}" for who, what in lost.items()]


def _missing(host: HostTopology, placement: Placement) -> Iterator[str]:
    """Yield what a placement needs that the host does not have at all, whoever uses it."""
    cells = {cell.id: cell for cell in host.cells}
    for placed in placement.cells:
        cell = cells.get(placed.host_cell)
        if cell is None:
            yield f"NUMA cell {placed.host_cell}"
        else:
            yield from _missing_in(cell, placed)


def _missing_in(cell: HostCell, placed: PlacedCell) -> Iterator[str]:
    cpus = placed.allocated_cpus & ~cell.dedicated_cpus
    if cpus:
        yield f"dedicated CPU {format_cpu_list(cpus)} of NUMA cell {cell.id}"
    need, have = placed.shared_vcpus.bit_count(), cell.shared_cpus.bit_count()
    if need > have:
        yield f"shared CPUs of NUMA cell {cell.id} (it needs {need}, there are {have})"
    sizes = {pool.size_kib for pool in cell.page_pools}
    if placed.page_size_kib and sizes and placed.page_size_kib not in sizes:
        yield f"pages of {placed.page_size_kib} KiB of NUMA cell {cell.id}"


def _short(cell: HostCell) -> Iterator[str]:
    """Yield of which pages a cell has fewer than guests hold, but for the smallest.

    Those are plain memory, of which every start of a machine leaves some MiB more or less.
    """
    for pool in sorted(cell.page_pools, key=lambda pool: pool.size_kib)[1:]:
        if pool.used > pool.total:
            yield (
                f"pages of {pool.size_kib} KiB of NUMA cell {cell.id} "
                f"(guests have {pool.used}, there are {pool.total})"
            )


def _reason(lost: Sequence[str]) -> str:
    more = f"; and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
    return f"{CHANGED_HARDWARE} under its guests: {'; '.join(lost[:_NAMED])}{more}"


def _reported(reported: Mapping[str, Any]) -> tuple[HostTopology, Mapping[str, Inventory]]:
    inventory = {name: Inventory(**item) for name, item in reported["inventory"].items()}
    return host_from_row(reported["hardware"]), inventory
