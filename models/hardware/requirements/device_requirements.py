"""What virtual hardware a guest requires besides CPUs and memory, and how near devices must be."""

from dataclasses import dataclass
from typing import Final

from models.hardware import Flavor, Image
from models.hardware.requirements.parsing import (
    agreed_choice,
    agreed_flag,
    image_choice,
    values_of,
    whole_number,
    wrong,
)

PCI_POLICIES: Final = ("required", "preferred", "legacy", "socket")
RESCUE_BUSES: Final = ("fdc", "ide", "lxc", "sata", "scsi", "uml", "usb", "virtio", "xen")
RESCUE_DEVICES: Final = ("cdrom", "disk", "floppy", "fs", "lun")
SECURE_BOOT: Final = ("required", "disabled", "optional")
TPM_MODELS: Final = ("tpm-tis", "tpm-crb")
TPM_VERSIONS: Final = ("1.2", "2.0")

_TIS, _CRB = TPM_MODELS


@dataclass(frozen=True, slots=True)
class Tpm:
    """A virtual trusted platform module."""

    version: str
    model: str


def serial_ports(flavor: Flavor, image: Image) -> int:
    """Return the number of serial ports; an image may ask for fewer than the flavor grants.

    0 means unset, and where neither sets it the guest has one.
    """
    ours, theirs = values_of("serial_port_count", flavor, image)
    code = "serial_port_count_invalid"
    granted = whole_number(ours, code, "hw:serial_port_count") if ours else 0
    wanted = 0 if theirs is None else whole_number(theirs, code, "hw_serial_port_count")
    if granted and wanted > granted:
        rule = f"the image wants {wanted}, and an image may only ask for fewer"
        raise wrong("serial_port_count_conflict", "hw:serial_port_count", ours, rule)
    return wanted or granted or 1


def tpm(flavor: Flavor, image: Image) -> Tpm | None:
    """Return the trusted platform module that is wanted, None without a version."""
    image_choice("hw_tpm_model", TPM_MODELS, image)
    version = agreed_choice("tpm_version", TPM_VERSIONS, flavor, image)
    if version is None:
        return None
    model = agreed_choice("tpm_model", TPM_MODELS, flavor, image) or _TIS
    if model == _CRB and version != "2.0":
        key = "hw:tpm_model" if flavor.extra_specs.get("hw:tpm_model") else "hw_tpm_model"
        raise wrong("tpm_model_needs_version", key, model, f"it needs version 2.0, not {version}")
    return Tpm(version, model)


def secure_boot(flavor: Flavor, image: Image) -> str | None:
    """Return the secure boot policy, None where neither sets it."""
    return agreed_choice("secure_boot", SECURE_BOOT, flavor, image, prefix="os")


def pmu(flavor: Flavor, image: Image) -> bool | None:
    """Return whether the guest gets a performance monitoring unit, None to leave it open."""
    return agreed_flag("pmu", flavor, image)


def vif_multiqueue(flavor: Flavor, image: Image) -> bool:
    """Return whether network interfaces have a queue a vCPU; never so with one vCPU."""
    if flavor.vcpus < 2:
        return False
    return agreed_flag("vif_multiqueue_enabled", flavor, image) or False


def pci_numa_policy(flavor: Flavor, image: Image) -> str | None:
    """Return how near devices must be: required, preferred, legacy, socket, None for unsaid."""
    return agreed_choice("pci_numa_affinity_policy", PCI_POLICIES, flavor, image)


def rescue(image: Image) -> bool:
    """Say whether the image names a device or a bus to be rescued from."""
    bus = image_choice("hw_rescue_bus", RESCUE_BUSES, image)
    device = image_choice("hw_rescue_device", RESCUE_DEVICES, image)
    return bus is not None or device is not None
