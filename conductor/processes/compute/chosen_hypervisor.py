"""The hypervisor that the command line chooses for a host."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from conductor.processes.compute.libvirt_options import LibvirtOptions
from conductor.processes.compute.simulated_hypervisor import hypervisor_of
from models.errors import Rejected
from workers.hypervisor.ports import Hypervisor


@dataclass(frozen=True, slots=True)
class ComputeOptions:
    """What the command line says of one host; all that outlives the process is in `directory`."""

    host: str
    topology: Path | None
    directory: Path
    faults: Mapping[str, str] = field(default_factory=dict)
    traits: tuple[str, ...] = ()
    libvirt: LibvirtOptions | None = None


def chosen_hypervisor(options: ComputeOptions) -> Hypervisor:
    """Return the hypervisor; raise `Rejected` (`binding_missing`) where libvirt's is missing."""
    folder = options.directory / "hypervisor"
    if options.libvirt is None:
        return hypervisor_of(folder, options.topology, options.faults, options.traits)
    # Its binding is compiled, and there only where libvirt is.
    try:
        module = importlib.import_module("conductor.processes.compute.libvirt_parts")
    except ImportError as error:
        message = f"--hypervisor libvirt needs {error.name}: deploy/hypervisor/install --binding"
        raise Rejected("binding_missing", message, key="--hypervisor") from error
    made: Hypervisor = module.libvirt_hypervisor(options.host, folder, options.libvirt)
    return made
