"""What a simulated host is made of apart from its agent."""

from __future__ import annotations

from dataclasses import dataclass, field

from workers.hypervisor.ports import Hypervisor
from workers.journal.memory_journal import MemoryJournal
from workers.journal.ports import Journal


@dataclass(frozen=True, slots=True)
class ComputeHost:
    """What a host is made of when its agent is not looked at: both survive the agent."""

    name: str
    hypervisor: Hypervisor
    journal: Journal = field(default_factory=MemoryJournal)
