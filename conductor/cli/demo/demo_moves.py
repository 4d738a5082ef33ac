"""Later operations of the demo: moves, rebuild, shelve; one move fails and is replayed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from rich.text import Text

from conductor.cli.demo.demo_stage import Stage
from conductor.processes.embedded.embedded_system import Embedded
from conductor.store import Instance, OperationRecord
from models.errors import Unreachable
from models.ids import InstanceId
from models.lifecycle import InstanceState, OperationState
from models.units import seconds_text
from workers.hypervisor.fault_injection import Call, InjectedFault, InjectedFaults

_CONTEXT: Final = {"project_id": "demo", "user_id": "demo"}
_DELETED_FIRST: Final = 12
"""How many pinned instances are deleted first: a full fleet has nowhere to move anything."""
_LONGEST_S: Final = 20.0
_MOST_EVENTS: Final = 8


_OPERATIONS: Final[tuple[tuple[tuple[str, dict[str, Any]], ...], ...]] = (
    (("migrate_instance", {}), ("confirm_resize", {})),
    (("resize_instance", {"flavor": "app"}), ("revert_resize", {})),
    (("live_migrate_instance", {}),),
    (("rebuild_instance", {"image": {"id": "debian-14"}}),),
    (("shelve_instance", {"offload": True}), ("unshelve_instance", {})),
)
"""What is done to each instance, one task after the other."""


@dataclass
class SpawnRefusals:
    """Fault injection of the demo: the instances that hosts refuse to spawn now."""

    instances: set[InstanceId] = field(default_factory=set)

    def added_to(self, injected_faults: InjectedFaults) -> InjectedFaults:
        """Return these faults, with refusals of the chosen instances added."""

        def fault(call: Call) -> InjectedFault:
            if call.verb == "spawn" and call.instance_id in self.instances:
                return InjectedFault(ending="refused")
            return injected_faults(call)

        return fault


class MovesOfDemo:
    """Carries out operations on instances of a running system and prints a line for each."""

    def __init__(self, system: Embedded, stage: Stage, spawn_refusals: SpawnRefusals) -> None:
        self._system = system
        self._stage = stage
        self._refusals = spawn_refusals
        self.failed: str | None = None

    def run(self) -> None:
        """Carry out one operation of each kind, as far as there are instances for it."""
        pinned = self._active("db", "cache")
        for instance in pinned[:_DELETED_FIRST]:
            self._do("delete_instance", instance.id)
        instances = iter(pinned[_DELETED_FIRST:])
        self._stage.print_line(
            Text(f"{_DELETED_FIRST} instances deleted to free capacity; others now move")
        )
        for steps in _OPERATIONS:
            moved = next(instances, None)
            if moved is None:
                return
            for task, arguments in steps:
                self._print(moved, self._do(task, moved.id, **arguments))
        self._fail_and_replay(instances)

    def _fail_and_replay(self, instances: Iterator[Instance]) -> None:
        moved = next(instances, None)
        if moved is None:
            return
        self._refusals.instances.add(InstanceId(moved.id))
        failed = self._do("migrate_instance", moved.id)
        self._print(moved, failed)
        self._print_events(failed)
        self._refusals.instances.clear()
        self.failed = failed.id
        body = {"operation_id": failed.id}
        again = self._wait(self._submit("replay_operation", body))
        self._print(moved, again, "replay of it")
        if again.state is OperationState.SUCCEEDED:
            self._print(moved, self._do("confirm_resize", moved.id))

    def _do(self, task: str, instance_id: str, **arguments: Any) -> OperationRecord:
        return self._wait(self._submit(task, {"instance_id": instance_id, **arguments}))

    def _submit(self, task: str, body: dict[str, Any]) -> str:
        return self._system.submit(f"conductor.{task}", {"context": _CONTEXT, **body})

    def _wait(self, operation_id: str) -> OperationRecord:
        until = time.monotonic() + _LONGEST_S
        while time.monotonic() < until:
            with self._system.store.read() as uow:
                record = uow.operations.get(operation_id)
            if record is not None and record.state.ended:
                return record
            time.sleep(0.02)
        raise Unreachable("demo_stuck", f"operation {operation_id} has not ended")

    def _active(self, *flavors: str) -> list[Instance]:
        with self._system.store.read() as uow:
            active = uow.instances.where(state=InstanceState.ACTIVE)
        return [instance for instance in active if instance.flavor.name in flavors]

    def _print(self, before: Instance, record: OperationRecord, what: str = "") -> None:
        with self._system.store.read() as uow:
            now = uow.instances.get(before.id) or before
            moves = uow.migrations.where(operation_id=record.id)
        took = seconds_text((record.ended_at or record.created_at) - record.created_at)
        name = what or record.kind.replace("_instance", "").replace("_", " ")
        good = record.state is OperationState.SUCCEEDED
        sign = ("● ", "bold green") if good else ("✗ ", "bold red")
        line = Text.assemble(sign, (f"{name:<14}", "cyan"), f" {before.name:<16} ")
        if not good:
            line.append(str((record.error or {}).get("message", record.state.value)))
        elif moves and moves[-1].target:
            line.append(f"{moves[-1].source} → {moves[-1].target}, {took}")
        else:
            line.append(f"{now.state} on {now.host or 'no host'}, {took}")
        self._stage.print_line(line)

    def _print_events(self, record: OperationRecord) -> None:
        with self._system.store.read() as uow:
            events = uow.events.where(operation_id=record.id)
        for event in events[:_MOST_EVENTS]:
            self._stage.print_line(Text(f"    {event.event} {event.detail}", style="dim"))
        if len(events) > _MOST_EVENTS:
            self._stage.print_line(Text(f"    … {len(events) - _MOST_EVENTS} more", style="dim"))
