"""A fleet of hosts of two NUMA cells, half full of guests with dedicated CPUs, in a database."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator, Sequence

from conductor.placement.local.host_claims import HostAllocation, with_allocations
from conductor.placement.resources import Ratios, inventory_of
from conductor.scheduling.request.instance_shape import shape_of
from conductor.store import Allocation, Heartbeat, Host, Instance, Store
from models.hardware import Flavor, HostCell, HostTopology, Image, Placement, span
from models.hardware.fitting.fit_guest import fit
from models.lifecycle import InstanceState, TaskState
from models.messages.internal import HostRequest, Reservation, SelectHosts, Token
from tests.scheduling.world import operation_that_asks

CPUS, SHARED, MEMORY_MIB, DISK_GB = 64, 16, 262_144, 8_000
"""Of each NUMA cell: threads, of which so many shared, and MiB; of the host: GiB."""

IMAGE = Image("image")
PINNED = {"hw:cpu_policy": "dedicated"}
BATCH = 1_000
FOREVER_S = 1e9


def flavor(name: str, vcpus: int, memory_mib: int, **specs: str) -> Flavor:
    return Flavor(name, vcpus, memory_mib, 10, extra_specs=specs)


def fill(store: Store, count: int) -> None:
    """Write so many hosts, each cell with a guest of random size on its dedicated CPUs."""
    chance = random.Random(count)
    topology = HostTopology(tuple(_cell(number) for number in range(2)))
    inventory = inventory_of(topology, DISK_GB, Reservation(), Ratios())
    for first in range(0, count, BATCH):
        names = [f"host-{number:05}" for number in range(first, min(count, first + BATCH))]
        hosts, guests = [], []
        for name in names:
            host = Host(name, topology, inventory)
            for _ in range(2):
                sizes = chance.randint(1, CPUS - SHARED), chance.randint(1_024, MEMORY_MIB // 2)
                guest, host = _with_guest(host, flavor("ballast", *sizes, **PINNED))
                guests += [] if guest is None else [guest]
            hosts.append(host)
        with store.begin() as uow:
            uow.hosts.add_many(hosts)
            uow.instances.add_many([instance for instance, _ in guests])
            uow.allocations.add_many([allocation for _, allocation in guests])
            # Heard of far in the future: nobody falls silent during a benchmark.
            beats = [Heartbeat(name, "compute", time.time() + FOREVER_S) for name in names]
            uow.heartbeats.add_many(beats)


def asks(store: Store, flavors: Sequence[Flavor], count: int) -> list[SelectHosts]:
    """Write so many instances and operations that wait for a host; return the messages."""
    messages = []
    for first in range(0, count, BATCH):
        with store.begin() as uow:
            instances, operations = [], []
            for number in range(first, min(count, first + BATCH)):
                instance = _instance(flavors[number % len(flavors)])
                operation = operation_that_asks(str(uuid.uuid4()))
                instances.append(instance)
                operations.append(operation)
                token = Token(operation_id=operation.id, step="claim", attempt=1, sequence=1)
                host_request = HostRequest(instance_id=instance.id, operation_id=operation.id)
                messages.append(SelectHosts(token=token, host_requests=(host_request,)))
            uow.instances.add_many(instances)
            uow.operations.add_many(operations)
    return messages


def overlaps(store: Store) -> Iterator[str]:
    """Yield every host whose pinned CPUs are not exactly those of its instances, each once."""
    with store.read() as uow:
        pinned: dict[str, list[tuple[int, int]]] = {}
        for instance in uow.instances.where():
            for cell in instance.placement.cells if instance.placement else ():
                pinned.setdefault(instance.host or "", []).append(
                    (cell.host_cell, cell.allocated_cpus)
                )
        for host in uow.hosts.where():
            for cell in host.topology.cells:
                masks = [mask for at, mask in pinned.get(host.name, ()) if at == cell.id]
                twice = sum(mask.bit_count() for mask in masks) != cell.pinned_cpus.bit_count()
                if twice or any(mask & ~cell.pinned_cpus for mask in masks):
                    yield host.name


def _cell(number: int) -> HostCell:
    first = number * CPUS
    return HostCell(
        id=number,
        socket=number,
        shared_cpus=span(first, first + SHARED - 1),
        dedicated_cpus=span(first + SHARED, first + CPUS - 1),
        memory_mib=MEMORY_MIB,
        siblings=tuple(0b11 << first + 2 * core for core in range(CPUS // 2)),
    )


def _with_guest(host: Host, wanted: Flavor) -> tuple[tuple[Instance, Allocation] | None, Host]:
    shape = shape_of(wanted, IMAGE)
    assert shape.guest is not None
    placement = fit(host.topology, shape.guest)
    if not isinstance(placement, Placement):
        return None, host
    instance = _instance(wanted, host.name, placement)
    held = HostAllocation(instance.id, "project", placement, shape.amounts)
    allocation = Allocation(instance.id, host.name, shape.amounts, project_id="project")
    return (instance, allocation), with_allocations(host, [held], 0.0)


def _instance(
    wanted: Flavor, host: str | None = None, placement: Placement | None = None
) -> Instance:
    identity = str(uuid.uuid4())
    return Instance(
        id=identity,
        name=identity,
        project_id="project",
        user_id="user",
        state=InstanceState.BUILDING if host is None else InstanceState.ACTIVE,
        task_state=TaskState.SCHEDULING if host is None else None,
        flavor=wanted,
        image=IMAGE,
        request_spec={},
        created_at=0.0,
        updated_at=0.0,
        host=host,
        placement=placement,
    )
