"""I1, I2 and I4 of the design, recomputed from instances and allocations alone.

Shares nothing with the code that claims: it adds up what instances say they hold and compares
the sums with what hosts say is in use.
"""

from __future__ import annotations

from collections import Counter

from conductor.store.ports import UnitOfWork
from conductor.store.records import Host, Instance
from models.lifecycle import InstanceState


def check_invariants(uow: UnitOfWork) -> None:
    """Raise `AssertionError` at the first host or allocation that does not add up."""
    instances = {i.id: i for i in uow.instances.where()}
    for allocation in uow.allocations.where():
        holder = instances.get(allocation.consumer_id)
        assert holder is not None, f"I1: {allocation} belongs to nobody"
        assert holder.state is not InstanceState.DELETED, f"I1: {allocation} of a deleted one"
        assert holder.host == allocation.host, f"I1: {allocation}, but it lives on {holder.host}"
    for host in uow.hosts.where():
        here = [i for i in instances.values() if i.host == host.name]
        _check_amounts(uow, host, here)
        for cell in host.topology.cells:
            _check_cell(host, cell.id, here)


def _check_amounts(uow: UnitOfWork, host: Host, here: list[Instance]) -> None:
    held: Counter[str] = Counter()
    consumers = set()
    for allocation in uow.allocations.where(host=host.name):
        held.update(allocation.amounts)
        consumers.add(allocation.consumer_id)
    assert consumers == {i.id for i in here}, f"I1: {host.name} holds {consumers}"
    used = {name: amount for name, amount in host.used.items() if amount}
    assert used == dict(held), f"I1: {host.name} says {used}, allocations say {dict(held)}"
    assert host.instances == len(here), f"I1: {host.name} counts {host.instances} instances"
    for name, amount in held.items():
        inventory = host.inventory[name]
        room = (inventory.total - inventory.reserved) * inventory.ratio
        assert amount <= room, f"I1: {host.name} over-commits {name}: {amount} of {room}"


def _check_cell(host: Host, cell_id: int, here: list[Instance]) -> None:
    cell = next(c for c in host.topology.cells if c.id == cell_id)
    pinned, memory_mib, shared = 0, 0, 0
    pages: Counter[int] = Counter()
    for instance in here:
        for placed in instance.placement.cells if instance.placement else ():
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
