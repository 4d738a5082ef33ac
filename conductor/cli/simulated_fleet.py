"""Simulated hosts whose guests and journals outlive the process."""

from __future__ import annotations

from pathlib import Path

from conductor.processes.embedded.compute_hosts import ComputeHost
from workers.hypervisor.fault_injection import InjectedFaults, always_done
from workers.hypervisor.ports import Hardware
from workers.hypervisor.simulated import SimulatedHypervisor
from workers.journal.journal_file import FileJournal


def kept_host(
    state_dir: Path, name: str, hardware: Hardware, injected_faults: InjectedFaults = always_done
) -> ComputeHost:
    """Return a host that keeps guests and journal in the state directory, found again by name."""
    home = state_dir / "compute" / name
    hypervisor = SimulatedHypervisor(hardware, home / "hypervisor", injected_faults)
    return ComputeHost(name, hypervisor, FileJournal(home))
