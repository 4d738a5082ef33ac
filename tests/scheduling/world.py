"""A small world for scheduling tests: hosts, instances and operations in a store in memory."""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from conductor.placement.resources import Ratios, inventory_of
from conductor.scheduling.scheduling_service import Scheduler
from conductor.scheduling.settings import SchedulingSettings
from conductor.store import (
    CatalogueEntry,
    Heartbeat,
    Host,
    Instance,
    OperationRecord,
    Store,
)
from conductor.store.memory.memory_store import MemoryStore
from models.hardware import Flavor, HostCell, HostTopology, Image, span
from models.lifecycle import InstanceState, OperationState, TaskState
from models.messages.internal import HostRequest, Reply, Reservation, SelectHosts, Token

IMAGE = Image(id="image-1")
PINNED = {"hw:cpu_policy": "dedicated"}


def topology(
    cells: int = 2, dedicated: int = 4, shared: int = 4, memory_mib: int = 8192
) -> HostTopology:
    """Return equal NUMA cells, each with its shared CPUs first, then the dedicated ones."""
    item = shared + dedicated
    return HostTopology(
        tuple(
            HostCell(
                id=number,
                socket=number,
                shared_cpus=span(number * item, number * item + shared - 1) if shared else 0,
                dedicated_cpus=span(number * item + shared, (number + 1) * item - 1)
                if dedicated
                else 0,
                memory_mib=memory_mib,
            )
            for number in range(cells)
        )
    )


def host(name: str, disk_gb: int = 1000, ratios: Ratios | None = None, **cells: int) -> Host:
    hardware = topology(**cells)
    inventory = inventory_of(hardware, disk_gb, Reservation(), ratios or Ratios())
    return Host(name=name, topology=hardware, inventory=inventory)


def flavor(vcpus: int = 2, memory_mib: int = 1024, root_gb: int = 10, **specs: str) -> Flavor:
    return Flavor("flavor", vcpus, memory_mib, root_gb, extra_specs=specs)


def pinned(vcpus: int = 2, memory_mib: int = 1024, **specs: str) -> Flavor:
    return Flavor("pinned", vcpus, memory_mib, 10, extra_specs={**PINNED, **specs})


@dataclass
class World:
    """A store and a scheduler over it. Every ask is an operation of its own."""

    store: Store = field(default_factory=MemoryStore)
    settings: SchedulingSettings = field(default_factory=SchedulingSettings)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.store, self.settings)

    def add_hosts(self, *hosts: Host, beat: bool = True) -> None:
        with self.store.begin() as uow:
            uow.hosts.add_many(hosts)
            if beat:
                for item in hosts:
                    uow.heartbeats.put(Heartbeat(item.name, "compute", uow.now))

    def define(self, kind: str, name: str, **body: Any) -> None:
        with self.store.begin() as uow:
            uow.catalogue.put(CatalogueEntry(kind, name, {"name": name, **body}, uow.now))

    def add_instance(
        self,
        wanted: Flavor | None = None,
        *,
        image: Image | None = IMAGE,
        group: str | None = None,
        **spec: Any,
    ) -> Instance:
        number = next(self.numbers)
        now = time.time()
        instance = Instance(
            id=str(uuid.uuid5(uuid.NAMESPACE_OID, f"instance-{number}")),
            name=f"vm-{number}",
            project_id="project",
            user_id="user",
            state=InstanceState.BUILDING,
            task_state=TaskState.SCHEDULING,
            flavor=wanted or flavor(),
            image=image,
            group=group,
            request_spec={key: value for key, value in spec.items() if value is not None},
            created_at=now,
            updated_at=now,
        )
        with self.store.begin() as uow:
            uow.instances.add(instance)
        return instance

    def ask(self, *instances: Instance, **more: Any) -> SelectHosts:
        """Write the operation that asks for hosts for these instances; return the message."""
        operation = operation_that_asks(str(uuid.uuid4()))
        with self.store.begin() as uow:
            uow.operations.add(operation)
        return SelectHosts(
            token=Token(operation_id=operation.id, step="claim", attempt=1, sequence=1),
            host_requests=tuple(
                HostRequest(instance_id=instance.id, operation_id=operation.id)
                for instance in instances
            ),
            **more,
        )

    def schedule(self, *instances: Instance, **more: Any) -> Reply:
        """Ask, and return the one reply."""
        return self.answer(self.ask(*instances, **more))

    def answer(self, message: SelectHosts) -> Reply:
        (outgoing,) = self.scheduler.handle(message)
        return Reply.model_validate_json(json.dumps(outgoing.body))

    def build(self, wanted: Flavor | None = None, **spec: Any) -> Reply:
        return self.schedule(self.add_instance(wanted, **spec))

    def host(self, name: str) -> Host:
        with self.store.read() as uow:
            found = uow.hosts.get(name)
        assert found is not None
        return found

    def instance(self, instance_id: str) -> Instance:
        with self.store.read() as uow:
            found = uow.instances.get(instance_id)
        assert found is not None
        return found


def operation_that_asks(identity: str) -> OperationRecord:
    now = time.time()
    return OperationRecord(
        id=identity,
        kind="build_instances",
        definition_version=1,
        state=OperationState.SCHEDULING,
        step="claim",
        project_id="project",
        user_id="user",
        request_id="",
        request={},
        digest="",
        data={},
        created_at=now,
        updated_at=now,
        sequence=1,
        waiting_on="scheduler",
    )


def chosen(reply: Reply) -> list[str]:
    """Return the hosts selected, in the order of the wants."""
    assert reply.outcome == "done", reply.error
    return [item["host"] for item in reply.result["selected"]]


def refusal(reply: Reply) -> str:
    """Return the one line that says why not."""
    assert reply.outcome == "failed", reply.result
    assert reply.error is not None
    message: str = reply.error["message"]
    return message
