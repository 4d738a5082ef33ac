"""Whether a guest's memory and its ephemeral disks are to be encrypted, and what that needs."""

from typing import Final

from models.errors import Rejected
from models.hardware import Flavor, Image
from models.hardware.requirements.parsing import agreed_choice, agreed_flag, image_choice, wrong

DISK_FORMATS: Final = ("plain", "luks", "luksv2")
FIRMWARE: Final = ("bios", "uefi")

_CHIPSET: Final = "q35"


def memory_encryption(flavor: Flavor, image: Image, machine_type: str | None = None) -> bool:
    """Return whether guest memory is encrypted; that needs UEFI firmware and a q35 machine.

    `machine_type` is what the host would use whatever the image says. A machine type that
    nobody names is left to the host.
    """
    firmware = image_choice("hw_firmware_type", FIRMWARE, image)
    if not agreed_flag("mem_encryption", flavor, image):
        return False
    if firmware != "uefi":
        raise Rejected(
            "mem_encryption_needs_uefi",
            f"hw_firmware_type is {firmware or 'not set'}: encrypted memory needs uefi",
            key="hw_firmware_type",
        )
    machine = machine_type or image.properties.get("hw_machine_type")
    # Versions are part of the name, as in pc-q35-2.11.
    if machine is not None and _CHIPSET not in str(machine):
        key = "machine_type" if machine_type else "hw_machine_type"
        rule = f"encrypted memory needs a {_CHIPSET} machine"
        raise wrong("mem_encryption_needs_q35", key, machine, rule)
    return True


def ephemeral_encryption(flavor: Flavor, image: Image) -> bool | None:
    """Return whether ephemeral disks are encrypted, None where neither sets it."""
    return agreed_flag("ephemeral_encryption", flavor, image)


def ephemeral_encryption_format(flavor: Flavor, image: Image) -> str | None:
    """Return how ephemeral disks are encrypted, None where neither sets it."""
    return agreed_choice("ephemeral_encryption_format", DISK_FORMATS, flavor, image)
