"""What the demo looks at while it runs, and at the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conductor.operations.engine.wait_reasons import ON_HOST
from conductor.store import Host, OperationRecord, UnitOfWork
from models.lifecycle import InstanceState, OperationState

BUILD, REQUEST = "build_instance", "build_instances"


@dataclass(frozen=True, slots=True)
class OperationStatus:
    """One look at the running demo. `waiting` counts instructions that are out, by host."""

    active: int
    failed: int
    building: int
    hosts: Sequence[Host]
    waiting: Mapping[str, int]

    @property
    def ended(self) -> int:
        """How many instances are no longer on their way."""
        return self.active + self.failed


@dataclass(frozen=True, slots=True)
class Refusals:
    """Requests for one flavor that failed alike; reason and example are the last one's."""

    flavor: str
    requests: int
    reason: str
    example: str


def look(uow: UnitOfWork) -> OperationStatus:
    """Look at everything once."""
    out = uow.operations.where(kind=BUILD, state=OperationState.DISPATCHED)
    waiting = Counter((record.waiting_on or "").removeprefix(ON_HOST) for record in out)
    return OperationStatus(
        active=uow.instances.count(state=InstanceState.ACTIVE),
        failed=uow.instances.count(state=InstanceState.ERROR),
        building=uow.instances.count(state=InstanceState.BUILDING),
        hosts=uow.hosts.where(),
        waiting=waiting,
    )


def refusals(uow: UnitOfWork) -> list[Refusals]:
    """Return the requests that failed, grouped by flavor and code, most frequent first."""
    groups: dict[tuple[str, str], list[OperationRecord]] = defaultdict(list)
    for record in uow.operations.where(kind=REQUEST, state=OperationState.FAILED):
        groups[_flavor_of(record), str((record.error or {}).get("code"))].append(record)
    found = [
        Refusals(flavor, len(records), _reason_of(records[-1]), records[-1].id)
        for (flavor, _), records in groups.items()
    ]
    return sorted(found, key=lambda group: (-group.requests, group.flavor))


def retried(uow: UnitOfWork) -> int:
    """Return how many instances were built on another host than the first that was chosen."""
    built = uow.operations.where(kind=BUILD, state=OperationState.SUCCEEDED)
    return sum(record.attempt > 1 for record in built)


def _flavor_of(record: OperationRecord) -> str:
    return str(record.request.get("instance", {}).get("flavor", "?"))


def _reason_of(record: OperationRecord) -> str:
    error = record.error or {}
    return str(error.get("message", "?"))
