"""What must be true of a whole system at rest: the database, the hosts, and each other."""

from __future__ import annotations

from typing import Protocol

from conductor.store.ports import Store
from models.lifecycle import InstanceState, OperationState
from tests.invariants import check_invariants

_HAS_GUEST = (InstanceState.ACTIVE, InstanceState.STOPPED, InstanceState.SHELVED)


class System(Protocol):
    """Anything with a database and hosts: one of threads and numbers, or of real processes."""

    @property
    def store(self) -> Store: ...

    def guests(self) -> dict[str, str]:
        """Return every guest that a hypervisor really has, and where."""


def check_at_any_time(world: System) -> None:
    """I1, I2, I4 on the database; I3: whoever is at work is looked at again some day."""
    with world.store.read() as uow:
        check_invariants(uow)
        for record in uow.operations.where(ended_at=None):
            assert record.wake_at is not None, record
        for instance in uow.instances.where():
            if instance.task_state is not None:
                running = uow.operations.get(instance.operation_id or "")
                assert running is not None, instance
                assert not running.state.ended, instance


def check_at_rest(world: System) -> None:
    """I7, and that hosts have exactly the guests that the database says."""
    check_at_any_time(world)
    with world.store.read() as uow:
        instances = uow.instances.where()
        for record in uow.operations.where():
            assert record.state.ended, record
            failed = record.state in (OperationState.FAILED, OperationState.STUCK)
            assert not failed or record.error, record
    expected = {i.id: i.host for i in instances if i.state in _HAS_GUEST}
    assert world.guests() == expected, _stories(world, expected)
    for instance in instances:
        if instance.state in (InstanceState.ERROR, InstanceState.DELETED):
            assert instance.host is None, instance
            assert instance.placement is None, instance
        if instance.state is InstanceState.ERROR:
            assert (instance.fault or {}).get("message"), instance
        assert instance.operation_id is None, instance


def _stories(world: System, expected: dict[str, str | None]) -> str:
    """Tell, for each guest that is where it should not be or is not, what happened to it."""
    found = world.guests()
    lines = []
    with world.store.read() as uow:
        for instance_id in sorted(set(found) | set(expected)):
            if found.get(instance_id) == expected.get(instance_id):
                continue
            instance = uow.instances.get(instance_id)
            state = instance.state if instance else "unknown"
            lines.append(
                f"{instance_id} {state}: on {found.get(instance_id)},"
                f" should be on {expected.get(instance_id)}"
            )
            lines += [
                f"  {e.at:.1f} {e.operation_id[:8]} {e.event} {e.detail}"
                for e in sorted(uow.events.where(instance_id=instance_id), key=lambda e: e.at)
            ]
    return "\n".join(lines)
