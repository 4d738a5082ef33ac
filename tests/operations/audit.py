"""What must be true of a whole system at rest: the database, the hosts, and each other."""

from __future__ import annotations

from typing import Protocol

from conductor.placement.consistency.guest_differences import GUESTS_DIFFER
from conductor.store import Store
from models.lifecycle import InstanceState, MigrationState, OperationState
from tests.invariants import check_invariants

_HAS_GUEST = (
    InstanceState.ACTIVE,
    InstanceState.STOPPED,
    InstanceState.PAUSED,
    InstanceState.SUSPENDED,
    InstanceState.SHELVED,
    InstanceState.RESIZED,
)


class System(Protocol):
    """Anything with a database and hosts: one of threads and numbers, or of real processes."""

    @property
    def store(self) -> Store: ...

    def guest_pairs(self) -> set[tuple[str, str | None]]:
        """Return every (instance, host) of which a hypervisor really has a guest."""


def check_at_any_time(world: System) -> None:
    """I1, I2, I4 on the database; I3: whoever is at work is looked at again some day."""
    with world.store.read() as uow:
        check_invariants(uow)
        for host in uow.hosts.where():
            assert not (host.degraded or "").startswith(GUESTS_DIFFER), host.degraded
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
    for instance in instances:
        if instance.state is InstanceState.DELETED:
            assert instance.host is None, instance
        if instance.state is InstanceState.ERROR:
            assert (instance.fault or {}).get("message"), instance
        assert instance.operation_id is None, instance
    expected = _expected(world)
    # What is in ERROR may have lost its guest; nothing else may lack one or have one too many.
    doubtful = {i.id for i in instances if i.state is InstanceState.ERROR}
    wrong = {pair for pair in expected ^ world.guest_pairs() if pair[0] not in doubtful}
    assert not wrong, _stories(world, wrong)


def _expected(world: System) -> set[tuple[str, str | None]]:
    """Return who should have a guest where: also the source of a move that awaits a decision."""
    with world.store.read() as uow:
        here = {(i.id, i.host) for i in uow.instances.where() if i.state in _HAS_GUEST}
        waiting = uow.migrations.where(state=MigrationState.FINISHED)
    return here | {(move.instance_id, move.source) for move in waiting}


def _stories(world: System, wrong: set[tuple[str, str | None]]) -> str:
    """Tell, for each guest that is where it should not be or is not, what happened to it."""
    found, lines = world.guest_pairs(), []
    with world.store.read() as uow:
        for instance_id, host in sorted(wrong, key=str):
            instance = uow.instances.get(instance_id)
            state = instance.state if instance else "unknown"
            what = "has" if (instance_id, host) in found else "lacks"
            lines.append(f"{host} {what} a guest of {instance_id}, which is {state}")
            lines += [
                f"  {e.at:.1f} {e.operation_id[:8]} {e.event} {e.detail}"
                for e in sorted(uow.events.where(instance_id=instance_id), key=lambda e: e.at)
            ]
    return "\n".join(lines)
