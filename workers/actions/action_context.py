"""What every action is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from models.ids import InstanceId
from models.messages.internal import Instruction
from workers.hypervisor.ports import Hypervisor, OnProgress
from workers.tracker import Tracker


@dataclass(frozen=True, slots=True)
class Work:
    """One instruction, what carries it out, and the time (seconds since the epoch).

    `on_progress` reports the progress of a long action to the conductor.
    """

    instruction: Instruction
    hypervisor: Hypervisor
    tracker: Tracker
    now: float
    on_progress: OnProgress

    @property
    def instance_id(self) -> InstanceId:
        """The instance that the instruction is about."""
        return InstanceId(self.instruction.instance_id)

    def settle(self) -> None:
        """Tell the tracker that the work on the guest has ended, and what it is now."""
        instance_id = self.instance_id
        self.tracker.settle(instance_id, lambda: self.hypervisor.domain(instance_id))


Action: TypeAlias = Callable[[Work], dict[str, Any]]
"""Does the work and returns the reply's `result`; raises as the hypervisor port does."""
