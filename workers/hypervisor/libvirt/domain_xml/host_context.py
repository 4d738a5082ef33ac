"""What of its host a domain's XML depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from models.hardware import CpuMask


@dataclass(frozen=True, slots=True)
class HostContext:
    """How a host runs its guests, the same for all of them.

    `shared_cpus` are, by NUMA cell, the CPUs for vCPUs that are not pinned. `sees_nodes` says
    whether memory can be bound to the host's NUMA nodes.
    """

    virtualization: Literal["kvm", "qemu"]
    guests: Path
    shared_cpus: Mapping[int, CpuMask] = field(default_factory=dict)
    sees_nodes: bool = True

    @property
    def all_shared_cpus(self) -> CpuMask:
        """Return the shared CPUs of all cells."""
        cpus = 0
        for mask in self.shared_cpus.values():
            cpus |= mask
        return cpus


DiskName: TypeAlias = Literal["root", "ephemeral", "swap"]


@dataclass(frozen=True, slots=True)
class GuestDisk:
    """One disk of a guest on this host; the format is stated, so that nobody guesses it."""

    name: DiskName
    path: Path
    format: str
