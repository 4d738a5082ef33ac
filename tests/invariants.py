"""I1, I2 and I4 of the design, recomputed from instances and allocations alone.

Shares nothing with the code that claims: it adds up what instances say they hold and compares
the sums with what hosts say is in use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from conductor.store.ports import UnitOfWork
from conductor.store.records import Host, Instance, Migration
from models.hardware.guest import Placement
from models.lifecycle import InstanceState


def check_invariants(uow: UnitOfWork) -> None:
    """Raise `AssertionError` at the first host or allocation that does not add up."""
    instances = {i.id: i for i in uow.instances.where()}
    moves = [m for m in uow.migrations.where() if m.unfinished]
    moving = {(m.instance_id, m.target) for m in moves if not m.switched}
    leaving = {(m.id, m.source) for m in moves}
    for allocation in uow.allocations.where():
        if (allocation.consumer_id, allocation.host) in leaving | moving:
            continue
        holder = instances.get(allocation.consumer_id)
        assert holder is not None, f"I1: {allocation} belongs to nobody"
        assert holder.state is not InstanceState.DELETED, f"I1: {allocation} of a deleted one"
        assert holder.host == allocation.host, f"I1: {allocation}, but it lives on {holder.host}"
    for host in uow.hosts.where():
        held = dict(_holders(instances.values(), moves, host.name))
        _check_amounts(uow, host, set(held))
        for cell in host.topology.cells:
            _check_cell(host, cell.id, list(held.values()))


def _holders(
    instances: Iterable[Instance], moves: list[Migration], host: str
) -> Iterator[tuple[str, Placement | None]]:
    """Yield who holds something of a host: instances here, moves that leave it or come to it."""
    leaving = {m.instance_id for m in moves if not m.switched}
    for instance in instances:
        if instance.host == host and instance.id not in leaving:
            yield instance.id, instance.placement
    for move in moves:
        if move.source == host:
            yield move.id, move.source_placement
        if move.target == host and not move.switched:
            yield move.instance_id, move.target_placement


def _check_amounts(uow: UnitOfWork, host: Host, holders: set[str]) -> None:
    held: Counter[str] = Counter()
    consumers = set()
    for allocation in uow.allocations.where(host=host.name):
        held.update(allocation.amounts)
        consumers.add(allocation.consumer_id)
    assert consumers == holders, f"I1: {host.name} is held by {consumers}, not {holders}"
    used = {name: amount for name, amount in host.used.items() if amount}
    assert used == dict(held), f"I1: {host.name} says {used}, allocations say {dict(held)}"
    assert host.instances == len(holders), f"I1: {host.name} counts {host.instances} instances"
    for name, amount in held.items():
        inventory = host.inventory[name]
        room = (inventory.total - inventory.reserved) * inventory.ratio
        assert amount <= room, f"I1: {host.name} over-commits {name}: {amount} of {room}"


def _check_cell(host: Host, cell_id: int, placements: list[Placement | None]) -> None:
    cell = next(c for c in host.topology.cells if c.id == cell_id)
    pinned, memory_mib, shared = 0, 0, 0
    pages: Counter[int] = Counter()
    for placement in placements:
        for placed in placement.cells if placement else ():
            if placed.host_cell != cell_id:
                continue
            mine = placed.reserved_cpus | placed.blocked_cpus
            for _, cpu in placed.pinning:
                mine |= 1 << cpu
            assert not pinned & mine, f"I2: two guests on the CPUs {pinned & mine:#x}"
            pinned |= mine
            memory_mib += placed.memory_mib
            shared += placed.shared_vcpus.bit_count()
            if placed.page_size_kib is not None:
                pages[placed.page_size_kib] += placed.memory_mib * 1024 // placed.page_size_kib
    assert cell.pinned_cpus == pinned, f"I2: {host.name} stores {cell.pinned_cpus:#x}"
    assert cell.memory_used_mib == memory_mib, f"I4: {host.name} stores other memory"
    assert cell.cpu_used == shared, f"I4: {host.name} stores {cell.cpu_used} shared vCPUs"
    for pool in cell.page_pools:
        assert pool.used >= pages[pool.size_kib], f"I4: {host.name} lost pages of {pool}"
        if pages[pool.size_kib]:
            assert pool.used + pool.reserved <= pool.total, f"I4: {host.name} {pool}"
