"""The audit of the demo: use computed again from the instances alone, compared with the records.

It shares no arithmetic with scheduler or claims: sets of CPU numbers and sums.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from conductor.store import Allocation, Host, Instance, UnitOfWork
from models.hardware import HostCell, PlacedCell, cpus_of
from models.lifecycle import InstanceState
from models.units import KIB_PER_MIB
from workers.hypervisor.ports import GuestDomain

_WITH_ALLOCATIONS = (InstanceState.ACTIVE, InstanceState.STOPPED)


@dataclass(frozen=True, slots=True)
class Books:
    """What the database says, read in one transaction."""

    hosts: Sequence[Host]
    instances: Sequence[Instance]
    allocations: Sequence[Allocation]
    domains: Mapping[str, Sequence[GuestDomain]] = field(default_factory=dict)


def read_books(uow: UnitOfWork, domains: Mapping[str, Sequence[GuestDomain]]) -> Books:
    """Return everything that has to agree."""
    return Books(uow.hosts.where(), uow.instances.where(), uow.allocations.where(), domains)


def disagreements(books: Books) -> list[str]:
    """Return one line for everything that does not add up; nothing when all does."""
    here: dict[str, list[Instance]] = defaultdict(list)
    for instance in books.instances:
        if instance.host is not None:
            here[instance.host].append(instance)
    return [
        *_of_consumers(books),
        *(line for host in books.hosts for line in _of_host(host, here[host.name])),
        *_of_amounts(books),
        *_of_domains(books),
    ]


def _of_consumers(books: Books) -> Iterator[str]:
    """Every consumer is an instance on that host, and every such instance has an allocation."""
    hosts_of = {instance.id: instance.host for instance in books.instances}
    for held in books.allocations:
        if hosts_of.get(held.consumer_id) != held.provider:
            yield f"{held.provider}: {held.consumer_id} has an allocation and is not there"
    holders = {held.consumer_id for held in books.allocations}
    for instance in books.instances:
        if instance.state in _WITH_ALLOCATIONS and instance.id not in holders:
            yield f"{instance.host}: {instance.name} is {instance.state} and has no allocation"


def _of_host(host: Host, instances: Iterable[Instance]) -> Iterator[str]:
    placed: dict[int, list[PlacedCell]] = defaultdict(list)
    for instance in instances:
        for guest in instance.placement.cells if instance.placement else ():
            placed[guest.host_cell].append(guest)
    for cell in host.topology.cells:
        where = f"{host.name}, NUMA cell {cell.id}"
        yield from (f"{where}: {line}" for line in _of_cell(cell, placed[cell.id]))


def _of_cell(cell: HostCell, placed: Sequence[PlacedCell]) -> Iterator[str]:
    times = Counter(cpu for guest in placed for cpu in _pinned(guest))
    if twice := sorted(cpu for cpu, count in times.items() if count > 1):
        yield f"CPUs {twice} are pinned twice"
    if set(times) != set(cpus_of(cell.pinned_cpus)):
        yield f"pinned are {sorted(times)}, noted are {list(cpus_of(cell.pinned_cpus))}"
    memory = sum(guest.memory_mib for guest in placed)
    if memory != cell.memory_used_mib:
        yield f"{memory} MiB are used, noted are {cell.memory_used_mib}"
    pages: Counter[int] = Counter()
    smallest = min((pool.size_kib for pool in cell.page_pools), default=0)
    for guest in placed:
        pages[guest.page_size_kib or smallest] += guest.memory_mib * KIB_PER_MIB
    for pool in cell.page_pools:
        if pages[pool.size_kib] != pool.used * pool.size_kib:
            yield f"{pages[pool.size_kib]} KiB of {pool.size_kib} KiB pages, noted {pool.used}"
        if pool.used + pool.reserved > pool.total:
            yield f"{pool.used} of {pool.total} pages of {pool.size_kib} KiB are in use"


def _of_amounts(books: Books) -> Iterator[str]:
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for held in books.allocations:
        used[held.provider].update(held.amounts)
    for host in books.hosts:
        noted = {name: amount for name, amount in host.used.items() if amount}
        if noted != dict(used[host.name]):
            yield f"{host.name}: allocated is {dict(used[host.name])}, noted is {noted}"
        for name, amount in noted.items():
            limit = host.inventory[name]
            if amount > (limit.total - limit.reserved) * limit.ratio:
                yield f"{host.name}: {amount} {name} are more than it has"


def _of_domains(books: Books) -> Iterator[str]:
    """Every instance that should run runs once, on its host, and nothing else does."""
    running = Counter(
        (host, str(domain.instance_id))
        for host, sequence in books.domains.items()
        for domain in sequence
    )
    wanted = {(i.host, i.id) for i in books.instances if i.state in _WITH_ALLOCATIONS}
    for host, instance_id in sorted(set(running) - wanted, key=str):
        yield f"{host}: {instance_id} runs though no instance should"
    for home, instance_id in sorted(wanted - set(running), key=str):
        yield f"{home}: {instance_id} should run and does not"


def _pinned(guest: PlacedCell) -> Iterator[int]:
    yield from (cpu for _, cpu in guest.pinning)
    yield from cpus_of(guest.reserved_cpus)
    yield from cpus_of(guest.blocked_cpus)
