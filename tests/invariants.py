"""Invariants I1, I2 and I4 of the design, recomputed from instances and allocations alone.

Shares nothing with the code that claims: sets of CPU numbers instead of masks, plain sums,
and what each instance says of itself. Read inside one transaction, so that the picture is whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from conductor.store import Allocation, Host, Instance, Inventory, Migration, Store, UnitOfWork
from models.hardware import HostCell, PlacedCell, Placement
from models.lifecycle import InstanceState, MigrationState


def check_invariants(uow: UnitOfWork) -> None:
    """Fail with every broken promise that this transaction sees, one a line."""
    broken = list(violations(uow))
    assert not broken, "\n".join(broken)


def assert_invariants(store: Store) -> None:
    """Fail with every broken promise, one a line."""
    with store.read() as uow:
        check_invariants(uow)


@dataclass(frozen=True)
class Held:
    """What an instance or a move says it holds of a host."""

    consumer: str
    host: str
    placement: Placement | None


def violations(uow: UnitOfWork) -> Iterator[str]:
    """Yield every broken promise of I1, I2 and I4 as one sentence."""
    live = [
        instance
        for instance in uow.instances.where()
        if instance.state is not InstanceState.DELETED
    ]
    moves = [migration for migration in uow.migrations.where() if migration.unfinished]
    providers = uow.providers.where()
    beside = {item.name for item in providers}
    held_at_all = uow.allocations.where()
    allocations = [allocation for allocation in held_at_all if allocation.provider not in beside]
    alive = {instance.id for instance in live} | {move.id for move in moves}
    for provider in providers:
        there = [allocation for allocation in held_at_all if allocation.provider == provider.name]
        yield from _amounts(provider.name, provider.inventories, provider.used, there)
        for allocation in there:
            if (
                allocation.consumer_kind in ("instance", "migration")
                and allocation.consumer_id not in alive
            ):
                yield f"I1: {provider.name} is allocated to {allocation.consumer_id}, which is gone"
    claimed = list(_claimed(live, moves))
    yield from _consumers(live, claimed, allocations)
    for host in uow.hosts.where():
        held = [allocation for allocation in allocations if allocation.provider == host.name]
        yield from _amounts(host.name, host.inventory, host.used, held)
        yield from _cells(host, [item for item in claimed if item.host == host.name])
        if host.instances != len(held):
            yield f"{host.name} counts {host.instances} instances, {len(held)} are allocated"


def _claimed(live: Iterable[Instance], moves: Iterable[Migration]) -> Iterator[Held]:
    """Yield who says to hold what: of a move, the source the migration, the target the instance.

    A move that has only been asked for holds nothing yet: its instance still holds the source.
    """
    begun = [migration for migration in moves if migration.state is not MigrationState.ACCEPTED]
    leaving = {migration.instance_id for migration in begun if not migration.switched}
    for instance in live:
        if instance.host is not None and instance.id not in leaving:
            yield Held(instance.id, instance.host, instance.placement)
    for move in begun:
        yield Held(move.id, move.source, move.source_placement)
        if move.target is not None and not move.switched:
            yield Held(move.instance_id, move.target, move.target_placement)


def _consumers(
    live: Iterable[Instance], claimed: Iterable[Held], allocations: Iterable[Allocation]
) -> Iterator[str]:
    """I1: allocations are exactly what live instances and unfinished moves say they hold."""
    said = {(held.consumer, held.host) for held in claimed}
    found = {(item.consumer_id, item.provider) for item in allocations}
    for consumer, host in sorted(found - said):
        yield f"I1: {host} is allocated to {consumer}, which is gone or elsewhere"
    for consumer, host in sorted(said - found):
        yield f"I1: {consumer} says it is on {host} and is allocated nothing there"
    for allocation in allocations:
        if not allocation.amounts:
            yield f"I1: {allocation.consumer_id} is allocated nothing on {allocation.provider}"
    for instance in live:
        if instance.placement is not None and instance.host is None:
            yield f"I1: {instance.id} has a placement and no host"


def _amounts(
    name_of: str,
    inventories: Mapping[str, Inventory],
    noted: Mapping[str, int],
    held: Iterable[Allocation],
) -> Iterator[str]:
    """Use is the sum of allocations, and within (total - reserved) * ratio."""
    used: Counter[str] = Counter()
    for allocation in held:
        used.update(allocation.amounts)
    stored = {name: amount for name, amount in noted.items() if amount}
    if stored != dict(used):
        yield f"{name_of} stores use {stored}, allocations add up to {dict(used)}"
    for name, amount in used.items():
        inventory = inventories.get(name)
        if inventory is None:
            yield f"{name_of} has no {name}, {amount} are allocated"
            continue
        most = (inventory.total - inventory.reserved) * Fraction(repr(inventory.ratio))
        if amount > most:
            yield f"{name_of} has {float(most)} {name}, {amount} are allocated"


def _cells(host: Host, here: Iterable[Held]) -> Iterator[str]:
    """Compare every NUMA cell's stored use with what those on it say."""
    placed: dict[int, list[PlacedCell]] = {cell.id: [] for cell in host.topology.cells}
    for held in here:
        for placed_cell in held.placement.cells if held.placement else ():
            if placed_cell.host_cell not in placed:
                number = placed_cell.host_cell
                yield f"{held.consumer} is on NUMA cell {number}, {host.name} has none"
                continue
            placed[placed_cell.host_cell].append(placed_cell)
    yield from _devices(host, here)
    for cell in host.topology.cells:
        name = f"{host.name} NUMA cell {cell.id}"
        yield from _pins(name, cell, placed[cell.id])
        yield from _memory(name, cell, placed[cell.id])


def _devices(host: Host, here: Iterable[Held]) -> Iterator[str]:
    """Each pool of devices has in use what those on the host have of it, and no more than all."""
    taken: Counter[str] = Counter()
    for held in here:
        for device in held.placement.devices if held.placement else ():
            key = (
                device.numa_node,
                device.vendor_id,
                device.product_id,
                sorted(device.tags.items()),
            )
            taken[str(key)] += device.count
    for pool in host.topology.pci_pools:
        name = str((pool.numa_node, pool.vendor_id, pool.product_id, sorted(pool.tags.items())))
        there = taken.pop(name, 0)
        if there != pool.used:
            yield f"{host.name} stores {pool.used} devices used of {name}, instances have {there}"
        if pool.used > pool.count:
            yield f"{host.name} has {pool.count} devices of {name}, {pool.used} are used"
    if taken:
        yield f"{host.name} has instances with devices that it does not have: {dict(taken)}"


def _pins(name: str, cell: HostCell, placed: Iterable[PlacedCell]) -> Iterator[str]:
    """I2: pinned CPUs never overlap, are dedicated ones, and equal the stored set."""
    owners: Counter[int] = Counter()
    shared = 0
    for placed_cell in placed:
        owners.update(cpu for _, cpu in placed_cell.pinning)
        owners.update(_numbers(placed_cell.reserved_cpus))
        owners.update(_numbers(placed_cell.blocked_cpus))
        shared += len(_numbers(placed_cell.shared_vcpus))
    twice = sorted(cpu for cpu, count in owners.items() if count > 1)
    if twice:
        yield f"I2: {name} has CPUs pinned twice: {twice}"
    strange = set(owners) - _numbers(cell.dedicated_cpus)
    if strange:
        yield f"I2: {name} has CPUs pinned that are not dedicated: {sorted(strange)}"
    if set(owners) != _numbers(cell.pinned_cpus):
        stored = sorted(_numbers(cell.pinned_cpus))
        yield f"I2: {name} stores pinned CPUs {stored}, instances have {sorted(owners)}"
    if shared != cell.cpu_used:
        yield f"I2: {name} stores {cell.cpu_used} shared vCPUs, instances have {shared}"


def _memory(name: str, cell: HostCell, placed: Iterable[PlacedCell]) -> Iterator[str]:
    """I4: memory and pages add up, and exact guests never over-commit them."""
    pools = {pool.size_kib: pool for pool in cell.page_pools}
    used: Counter[int] = Counter()
    exact: Counter[int] = Counter()
    memory_mib = exact_mib = 0
    for placed_cell in placed:
        memory_mib += placed_cell.memory_mib
        is_exact = bool(placed_cell.pinning) or placed_cell.page_size_kib is not None
        exact_mib += placed_cell.memory_mib if is_exact else 0
        if pools:
            size = placed_cell.page_size_kib or min(pools)
            pages = -(-placed_cell.memory_mib * 1024 // size)
            used[size] += pages
            exact[size] += pages if is_exact else 0
    if memory_mib != cell.memory_used_mib:
        yield f"I4: {name} stores {cell.memory_used_mib} MiB used, instances have {memory_mib}"
    if exact_mib > cell.memory_mib:
        yield f"I4: {name} has {cell.memory_mib} MiB, guests that never over-commit {exact_mib}"
    if sum(size * pool.total for size, pool in pools.items()) > cell.memory_mib * 1024:
        yield f"I4: {name} has more memory in pages than {cell.memory_mib} MiB"
    for size, pool in pools.items():
        if used[size] != pool.used:
            yield f"I4: {name} stores {pool.used} pages of {size} KiB, instances have {used[size]}"
        if exact[size] + pool.reserved > pool.total:
            yield f"I4: {name} has {pool.total} pages of {size} KiB, over-committed"


def _numbers(mask: int) -> set[int]:
    return {cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1}
