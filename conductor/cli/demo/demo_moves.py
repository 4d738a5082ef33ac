"""What happens to instances later: moves, new images, the shelf; one move fails and is replayed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from rich.text import Text

from conductor.cli.demo.demo_system import Stage
from conductor.processes.embedded import Embedded
from conductor.store import Instance, OperationRecord
from models.errors import Unreachable
from models.ids import InstanceId
from models.lifecycle import InstanceState, OperationState
from models.units import seconds_text
from workers.hypervisor.fault_injection import Call, InjectedFault, InjectedFaults

_CONTEXT: Final = {"project_id": "demo", "user_id": "demo"}
_ROOM_FOR: Final = 12
"""How many pinned instances are deleted first: a full fleet has nowhere to move anything."""
_LONGEST_S: Final = 20.0
_STORY_LINES: Final = 8


_JOURNEYS: Final[tuple[tuple[tuple[str, dict[str, Any]], ...], ...]] = (
    (("migrate_instance", {}), ("confirm_resize", {})),
    (("resize_instance", {"flavor": "app"}), ("revert_resize", {})),
    (("live_migrate_instance", {}),),
    (("rebuild_instance", {"image": {"id": "debian-14"}}),),
    (("shelve_instance", {"offload": True}), ("unshelve_instance", {})),
)
"""What each traveller does, one task after the other."""


@dataclass
class Moods:
    """Which instances hosts refuse to spawn just now: how the demo makes a move fail."""

    refused: set[InstanceId] = field(default_factory=set)

    def over(self, injected_faults: InjectedFaults) -> InjectedFaults:
        """Return fates that give way to the mood."""

        def injected_fault(call: Call) -> InjectedFault:
            if call.verb == "spawn" and call.instance_id in self.refused:
                return InjectedFault(ending="refused")
            return injected_faults(call)

        return injected_fault


class Travels:
    """Moves instances of a running system about, telling each journey in a line."""

    def __init__(self, system: Embedded, stage: Stage, moods: Moods) -> None:
        self._system = system
        self._stage = stage
        self._moods = moods
        self.failed: str | None = None

    def happen(self) -> None:
        """Do one of everything; a fleet too small or too sick for it is left alone."""
        pinned = self._active("db", "cache")
        for instance in pinned[:_ROOM_FOR]:
            self._do("delete_instance", instance.id)
        travellers = iter(pinned[_ROOM_FOR:])
        self._stage.tell(Text(f"{_ROOM_FOR} instances deleted to make room; the others travel"))
        for steps in _JOURNEYS:
            traveller = next(travellers, None)
            if traveller is None:
                return
            for task, arguments in steps:
                self._tell(traveller, self._do(task, traveller.id, **arguments))
        self._fail_and_replay(travellers)

    def _fail_and_replay(self, travellers: Iterator[Instance]) -> None:
        traveller = next(travellers, None)
        if traveller is None:
            return
        self._moods.refused.add(InstanceId(traveller.id))
        failed = self._do("migrate_instance", traveller.id)
        self._tell(traveller, failed)
        self._tell_story(failed)
        self._moods.refused.clear()
        self.failed = failed.id
        body = {"operation_id": failed.id}
        again = self._wait(self._submit("replay_operation", body))
        self._tell(traveller, again, "replay of it")
        if again.state is OperationState.SUCCEEDED:
            self._tell(traveller, self._do("confirm_resize", traveller.id))

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

    def _tell(self, before: Instance, record: OperationRecord, what: str = "") -> None:
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
        self._stage.tell(line)

    def _tell_story(self, record: OperationRecord) -> None:
        with self._system.store.read() as uow:
            events = uow.events.where(operation_id=record.id)
        for event in events[:_STORY_LINES]:
            self._stage.tell(Text(f"    {event.event} {event.detail}", style="dim"))
        if len(events) > _STORY_LINES:
            self._stage.tell(Text(f"    … {len(events) - _STORY_LINES} more", style="dim"))
