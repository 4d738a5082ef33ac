"""Simulation: a trace scheduled on a fleet as in production, without a broker, one at a time.

Every request becomes an instance and an operation in a store in memory; the scheduler is the one
that serves the queue, with its filters, fitter, weighers and claims.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal

from conductor.placement.resources import MEMORY_MB, PCPU
from conductor.scheduling.analysis.request_trace import TraceHost, TraceRequest
from conductor.scheduling.scheduling_service import Scheduler
from conductor.scheduling.settings import SchedulingSettings
from conductor.store import (
    CatalogueEntry,
    Heartbeat,
    Host,
    Instance,
    Inventory,
    OperationRecord,
    UnitOfWork,
)
from conductor.store.memory.memory_store import MemoryStore
from models.errors import Rejected
from models.hardware import Flavor, HostCell, HostTopology, Image, span
from models.lifecycle import InstanceState, OperationState, TaskState
from models.messages.internal import SCHEDULER, HostRequest, OutgoingMessage, SelectHosts, Token

RACK: Final = "rack"
NOW: Final = 0.0
"""Time stands still in a simulation, so that no host falls silent."""

_RULES: Final[Mapping[str, Mapping[str, str]]] = {
    "affinity": {"policy": "affinity", "scope": RACK},
    "anti-affinity": {"policy": "anti-affinity"},
    "fault_domain": {"policy": "fault-domain", "scope": RACK},
}
RACK_RULES: Final = frozenset(name for name, rule in _RULES.items() if rule.get("scope") == RACK)
_IMAGE: Final = Image(id="image")
_PROJECT: Final = "trace"
_FOREVER_S: Final = 1e9


@dataclass(frozen=True, slots=True)
class Placed:
    """The outcome of one request: host and host cells in the guest's order, or the reason.

    `took_s` is the time of the scheduler alone, selection and claim.
    """

    request: int
    host: str | None
    cells: tuple[int, ...]
    took_s: float
    code: str | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the placements line of the contract."""
        line: dict[str, Any] = {
            "request": self.request,
            "host": self.host,
            "cells": list(self.cells),
        }
        return line if self.host else {**line, "reason": self.reason}


class Simulation:
    """Hosts in a store of their own and the scheduler over them."""

    def __init__(
        self, hosts: Sequence[TraceHost], strategy: Literal["pack", "spread"] = "spread"
    ) -> None:
        self._store = MemoryStore(clock=lambda: NOW)
        # Nothing else changes this fleet and no host refuses: no refresh, no alternates.
        settings = SchedulingSettings(strategy=strategy, alternates=0, refresh_s=_FOREVER_S)
        self._scheduler = Scheduler(self._store, settings)
        self._count = 0
        self._sent: list[OutgoingMessage] = []
        with self._store.begin() as uow:
            uow.hosts.add_many([_host(host) for host in hosts])
            uow.heartbeats.add_many([Heartbeat(host.name, "compute", NOW) for host in hosts])
            uow.catalogue.add_many(_racks(hosts))

    def run(self, requests: Iterable[TraceRequest]) -> Iterator[Placed]:
        """Place requests one by one, in order; none is known ahead, none is moved later."""
        for request in requests:
            yield self.place(request)

    def place(self, request: TraceRequest) -> Placed:
        """Place one more request."""
        number, self._count = self._count, self._count + 1
        message = self._message(number, request)
        began = time.perf_counter()
        self._sent = self._scheduler.handle(message)
        took_s = time.perf_counter() - began
        (outgoing,) = self._sent
        return self._placed(number, outgoing.body, took_s)

    def _message(self, number: int, request: TraceRequest) -> SelectHosts:
        instance_id, operation_id = _id("instance", number), _id("operation", number)
        with self._store.begin() as uow:
            self._drop_operation(uow, number - 1)
            if request.group_name is not None and request.strategy is not None:
                body = {"name": request.group_name, **_RULES[request.strategy]}
                uow.catalogue.put(CatalogueEntry("server_group", request.group_name, body, NOW))
            uow.instances.add(_instance(instance_id, request))
            uow.operations.add(_operation(operation_id))
        token = Token(operation_id=operation_id, step="claim_host", attempt=1, sequence=1)
        return SelectHosts(
            token=token,
            host_requests=(HostRequest(instance_id=instance_id, operation_id=operation_id),),
        )

    def _drop_operation(self, uow: UnitOfWork, number: int) -> None:
        """Delete what a finished operation leaves, as retention would: memory is bounded."""
        operation_id = _id("operation", number)
        uow.outbox.drop_many([outgoing.id for outgoing in self._sent])
        for decision in uow.decisions.where(operation_id=operation_id):
            uow.decisions.drop(decision.id)
        uow.operations.drop(operation_id)

    def _placed(self, number: int, reply: Mapping[str, Any], took_s: float) -> Placed:
        if reply["outcome"] != "done":
            error = reply["error"]
            return Placed(number, None, (), took_s, _main_reason(error), error["message"])
        with self._store.read() as uow:
            instance = uow.instances.get(_id("instance", number))
        if instance is None or instance.host is None or instance.placement is None:
            raise Rejected("simulation_broken", f"request {number} was claimed but has no place")
        cells = tuple(cell.host_cell for cell in instance.placement.cells)
        return Placed(number, instance.host, cells, took_s)


def _main_reason(error: Mapping[str, Any]) -> str:
    """Return the check that removed most hosts, or the code of another error."""
    reasons = error.get("data", {}).get("reasons", ())
    if not reasons:
        return str(error["code"])
    return str(max(reasons, key=lambda reason: reason["hosts"])["check"])


def _host(trace: TraceHost) -> Host:
    cells, first = [], 0
    for number, (cpus, memory_mib) in enumerate(trace.cells):
        mask = span(first, first + cpus - 1) if cpus else 0
        cells.append(HostCell(number, number, 0, mask, memory_mib))
        first += cpus
    inventory = {
        PCPU: Inventory(first),
        MEMORY_MB: Inventory(sum(memory_mib for _, memory_mib in trace.cells)),
    }
    return Host(trace.name, HostTopology(tuple(cells)), inventory)


def _racks(hosts: Iterable[TraceHost]) -> list[CatalogueEntry]:
    racks: dict[str, list[str]] = {}
    for host in hosts:
        if host.rack is not None:
            racks.setdefault(host.rack, []).append(host.name)
    return [
        CatalogueEntry("aggregate", f"rack-{rack}", {"hosts": names, "metadata": {RACK: rack}}, NOW)
        for rack, names in racks.items()
    ]


def _instance(instance_id: str, request: TraceRequest) -> Instance:
    hints = {} if request.domain is None else {"scheduler_hints": {"domain": request.domain}}
    return Instance(
        id=instance_id,
        name=instance_id,
        project_id=_PROJECT,
        user_id="",
        state=InstanceState.BUILDING,
        flavor=_flavor(request.vcpus, request.memory_mib, request.numa_cells),
        image=_IMAGE,
        request_spec=hints,
        created_at=NOW,
        updated_at=NOW,
        task_state=TaskState.SCHEDULING,
        group=request.group_name,
    )


@lru_cache(maxsize=1024)
def _flavor(vcpus: int, memory_mib: int, numa_cells: int) -> Flavor:
    """Return the size with dedicated CPUs: a trace's CPUs are never over-committed."""
    specs = {"hw:cpu_policy": "dedicated", "hw:numa_nodes": str(numa_cells)}
    return Flavor(f"{vcpus}-{memory_mib}-{numa_cells}", vcpus, memory_mib, extra_specs=specs)


def _operation(operation_id: str) -> OperationRecord:
    return replace(_WAITING, id=operation_id)


def _id(kind: str, number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{kind}-{number}"))


_WAITING: Final = OperationRecord(
    id="",
    kind="build_instance",
    definition_version=1,
    state=OperationState.SCHEDULING,
    step="claim_host",
    project_id=_PROJECT,
    user_id="",
    request_id="",
    request={},
    digest="",
    data={},
    created_at=NOW,
    updated_at=NOW,
    sequence=1,
    waiting_on=SCHEDULER,
)
