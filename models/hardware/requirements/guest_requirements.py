"""All requirements of a flavor and an image, each with its value or refusal."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from models.errors import Rejected
from models.hardware import Flavor, Image
from models.hardware.requirements import (
    cpu_requirements,
    device_requirements,
    encryption_requirements,
    memory_requirements,
)
from models.hardware.requirements.cpu_topology import best_topology, topology_bounds
from models.hardware.requirements.numa_constraints import guest_topology

Value: TypeAlias = object
"""A JSON scalar, a CPU set, or a value of the module that read it; `Rejected` where refused."""


@dataclass(frozen=True, slots=True)
class GuestRequirements:
    """A flavor, an image, and what the host adds to them.

    `machine_type` goes before the image's. Without `allow_threads` guests see none.
    """

    flavor: Flavor
    image: Image
    machine_type: str | None = None
    allow_threads: bool = True


_READERS: Final[Mapping[str, Callable[[GuestRequirements], Value]]] = {
    "serial_ports": lambda w: device_requirements.serial_ports(w.flavor, w.image),
    "memory_encryption": lambda w: encryption_requirements.memory_encryption(
        w.flavor, w.image, w.machine_type
    ),
    "vtpm": lambda w: device_requirements.tpm(w.flavor, w.image),
    "secure_boot": lambda w: device_requirements.secure_boot(w.flavor, w.image),
    "pmu": lambda w: device_requirements.pmu(w.flavor, w.image),
    "vif_multiqueue": lambda w: device_requirements.vif_multiqueue(w.flavor, w.image),
    "pci_numa_affinity_policy": lambda w: device_requirements.pci_numa_policy(w.flavor, w.image),
    "emulator_threads_policy": lambda w: cpu_requirements.emulator_threads_policy(w.flavor),
    "realtime_cpus": lambda w: cpu_requirements.realtime_cpus(w.flavor, w.image),
    "dedicated_cpus": lambda w: cpu_requirements.dedicated_cpus(w.flavor),
    "cpu_policy": lambda w: cpu_requirements.cpu_policy(w.flavor, w.image),
    "cpu_thread_policy": lambda w: cpu_requirements.cpu_thread_policy(w.flavor, w.image),
    "ephemeral_encryption": lambda w: encryption_requirements.ephemeral_encryption(
        w.flavor, w.image
    ),
    "ephemeral_encryption_format": lambda w: encryption_requirements.ephemeral_encryption_format(
        w.flavor, w.image
    ),
    "locked_memory": lambda w: memory_requirements.locked_memory(w.flavor, w.image),
    "page_size": lambda w: memory_requirements.page_size(w.flavor, w.image),
    "vpmem": lambda w: memory_requirements.vpmem_labels(w.flavor),
    "rescue": lambda w: device_requirements.rescue(w.image),
    "numa": lambda w: guest_topology(w.flavor, w.image),
}


def all_requirements(requirements: GuestRequirements) -> dict[str, Value | Rejected]:
    """Return the value of every field of the contract's `guest`, or why it cannot be answered.

    One that is wrong leaves the others as they are; one that others are read from is reported
    under each of them.
    """
    values = _topologies(requirements)
    for field, read in _READERS.items():
        try:
            values[field] = read(requirements)
        except Rejected as refusal:
            values[field] = refusal
    return values


def refuse_contradictions(flavor: Flavor, image: Image) -> None:
    """Raise the first `Rejected` among everything that flavor and image say."""
    for value in all_requirements(GuestRequirements(flavor, image)).values():
        if isinstance(value, Rejected):
            raise value


def _topologies(requirements: GuestRequirements) -> dict[str, Value | Rejected]:
    """Return the three CPU topologies, which are read together."""
    try:
        bounds = topology_bounds(requirements.flavor, requirements.image)
    except Rejected as refusal:
        names = ("cpu_topology", "cpu_topology_preferred", "cpu_topology_maximum")
        return dict.fromkeys(names, refusal)
    best: Value | Rejected
    try:
        best = best_topology(requirements.flavor.vcpus, bounds, requirements.allow_threads)
    except Rejected as refusal:
        best = refusal
    return {
        "cpu_topology": best,
        "cpu_topology_preferred": bounds.preferred,
        "cpu_topology_maximum": bounds.maximum,
    }
