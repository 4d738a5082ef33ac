"""What a flavor and an image mean together: the NUMA topology of the guest, or why not.

A topology arises where somebody asks for NUMA cells, dedicated CPUs, a page size or
persistent memory; a guest that asks for none of these floats over its whole host.
"""

from typing import Final

from models.errors import Rejected
from models.hardware import CpuMask, Flavor, GuestCell, GuestTopology, Image
from models.hardware.requirements.cpu_requirements import (
    CPU_POLICIES,
    THREAD_POLICIES,
    CpuRequirement,
    cpu_requirement,
)
from models.hardware.requirements.device_requirements import (
    PCI_POLICIES,
    RESCUE_BUSES,
    RESCUE_DEVICES,
    SECURE_BOOT,
    TPM_MODELS,
    TPM_VERSIONS,
)
from models.hardware.requirements.encryption_requirements import DISK_FORMATS, FIRMWARE
from models.hardware.requirements.extra_specs import refuse_unknown_hardware
from models.hardware.requirements.memory_requirements import locked_memory, page_size, vpmem_labels
from models.hardware.requirements.numa_requirements import (
    NumaMaps,
    equal_shares,
    mapped_shares,
    numa_maps,
    numa_nodes,
)
from models.hardware.requirements.parsing import image_choice, values_of

IMAGE_CHOICES: Final = {
    "hw_cpu_policy": CPU_POLICIES,
    "hw_cpu_thread_policy": THREAD_POLICIES,
    "hw_ephemeral_encryption_format": DISK_FORMATS,
    "hw_firmware_type": FIRMWARE,
    "hw_pci_numa_affinity_policy": PCI_POLICIES,
    "hw_rescue_bus": RESCUE_BUSES,
    "hw_rescue_device": RESCUE_DEVICES,
    "hw_tpm_model": TPM_MODELS,
    "hw_tpm_version": TPM_VERSIONS,
    "os_secure_boot": SECURE_BOOT,
}
"""Image properties with a fixed choice of values; others are refused even where unused."""


def guest_topology(flavor: Flavor, image: Image) -> GuestTopology | None:
    """Return the NUMA topology that flavor and image ask for, None where they ask for none.

    Raises `Rejected` with a stable code and the key at fault for values that are wrong and
    for requirements that contradict each other.
    """
    refuse_unknown_hardware(flavor, image)
    for key in image.properties:
        if key in IMAGE_CHOICES:
            image_choice(key, IMAGE_CHOICES[key], image)
    cpu = cpu_requirement(flavor, image)
    nodes = numa_nodes(flavor, image)
    page_size_kib = page_size(flavor, image)
    locked_memory(flavor, image)
    maps = numa_maps(flavor, image)
    if not (nodes or page_size_kib or cpu.dedicated or vpmem_labels(flavor)):
        if maps is not None:
            raise _unused(maps)
        return None
    shares = _shares(flavor, image, nodes or 1, maps)
    return GuestTopology(
        tuple(_cell(node, share, cpu, page_size_kib) for node, share in enumerate(shares)),
        cpu.emulator_threads_policy,
    )


def _shares(
    flavor: Flavor, image: Image, nodes: int, maps: NumaMaps | None
) -> list[tuple[CpuMask, int]]:
    if maps is not None:
        return mapped_shares(flavor, nodes, maps)
    ours, _ = values_of("numa_nodes", flavor, image)
    return equal_shares(flavor, nodes, "hw:numa_nodes" if ours else "hw_numa_nodes")


def _cell(
    node: int, share: tuple[CpuMask, int], cpu: CpuRequirement, page_size_kib: int | None
) -> GuestCell:
    cpus, memory_mib = share
    return GuestCell(
        node,
        cpus & ~cpu.dedicated,
        cpus & cpu.dedicated,
        memory_mib,
        page_size_kib,
        cpu.policy,
        cpu.thread_policy,
    )


def _unused(maps: NumaMaps) -> Rejected:
    key = (maps.cpus or maps.memory_mib)[0][0]
    rule = "nothing asks for a guest NUMA topology; set hw:numa_nodes"
    return Rejected("numa_map_unused", f"{key} is refused: {rule}", key=key)
