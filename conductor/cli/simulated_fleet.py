"""Simulated hosts whose guests and journals outlive the process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from conductor.processes.embedded.compute_hosts import ComputeHost
from conductor.processes.simulated_hosts import default_hardware
from workers.hypervisor.fault_injection import InjectedFaults, always_done
from workers.hypervisor.ports import Hardware
from workers.hypervisor.simulated import SimulatedHypervisor
from workers.inventory import read_host_files
from workers.journal.journal_file import FileJournal


def kept_host(
    state_dir: Path, name: str, hardware: Hardware, injected_faults: InjectedFaults = always_done
) -> ComputeHost:
    """Return a host that keeps guests and journal in the state directory, found again by name."""
    home = state_dir / "compute" / name
    hypervisor = SimulatedHypervisor(hardware, home / "hypervisor", injected_faults)
    return ComputeHost(name, hypervisor, FileJournal(home))


def kept_hosts(state_dir: Path, count: int, files: Sequence[Path]) -> list[ComputeHost]:
    """Return the hosts that `files` describe, or without any, `count` default ones."""
    named: dict[str, Hardware] = {}
    if files:
        named = {described.name: described.hardware for described in read_host_files(files)}
    else:
        named = {f"host-{number:02}": default_hardware() for number in range(1, count + 1)}
    return [kept_host(state_dir, name, hardware) for name, hardware in named.items()]
