"""What is refused of a flavor, or of an image, before the other one is known."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest

from models.errors import Rejected
from models.hardware import Flavor, Image
from models.hardware.requirements.guest_requirements import refuse_contradictions
from models.hardware.requirements.standalone import refuse_flavor, refuse_image

Specs = dict[str, str]

PAIRS = 20_000
SPECS: dict[str, tuple[str, ...]] = {
    "hw:cpu_policy": ("shared", "dedicated", "mixed", "own"),
    "hw:cpu_thread_policy": ("prefer", "require", "isolate", "own"),
    "hw:emulator_threads_policy": ("share", "isolate", "own"),
    "hw:cpu_realtime": ("yes", "no"),
    "hw:cpu_dedicated_mask": ("0", "^0", "9", "x"),
    "hw:cpu_max_sockets": ("0", "1", "x"),
    "hw:cpu_max_cores": ("1", "2"),
    "hw:cpu_max_threads": ("1", "3"),
    "hw:cpu_sockets": ("1", "4"),
    "hw:numa_nodes": ("0", "1", "2", "x"),
    "hw:numa_cpus.0": ("0", "0-1", "7", "x"),
    "hw:numa_cpus.1": ("1", "2-3"),
    "hw:numa_mem.0": ("512", "1024"),
    "hw:numa_mem.1": ("512",),
    "hw:mem_page_size": ("large", "any", "2048", "x"),
    "hw:locked_memory": ("true",),
    "hw:mem_encryption": ("true",),
    "hw:tpm_version": ("1.2", "2.0", "3"),
    "hw:tpm_model": ("tpm-crb", "own"),
    "hw:serial_port_count": ("1", "x"),
    "hw:pci_numa_affinity_policy": ("required", "own"),
    "resources:PCPU": ("2", "x"),
    "resources:VCPU": ("2",),
    "trait:HW_CPU_HYPERTHREADING": ("required", "forbidden", "own"),
}
PROPERTIES: dict[str, tuple[Any, ...]] = {
    "hw_cpu_policy": ("shared", "dedicated", "mixed", "own"),
    "hw_cpu_thread_policy": ("prefer", "require", "isolate"),
    "hw_cpu_realtime_mask": ("^0", "0-1", "x"),
    "hw_cpu_max_sockets": ("1", "2", "x"),
    "hw_cpu_sockets": ("1", "4"),
    "hw_numa_nodes": ("0", "1", 2),
    "hw_numa_cpus.0": ("0", "0-1", "x"),
    "hw_numa_cpus.1": ("1", "2-3"),
    "hw_numa_mem.0": ("512",),
    "hw_numa_mem.1": ("512", 1.5),
    "hw_mem_page_size": ("large", "x"),
    "hw_firmware_type": ("uefi", "bios", "own"),
    "hw_machine_type": ("q35", "pc"),
    "hw_tpm_version": ("2.0", "3"),
    "hw_serial_port_count": (1, "x"),
    "os_secure_boot": ("required", "own"),
    "trait:HW_CPU_HYPERTHREADING": ("required", "own"),
}


def drawn(dice: Random, among: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Return a few keys with one of their values each."""
    keys = dice.sample(sorted(among), dice.randint(0, 4))
    return {key: dice.choice(among[key]) for key in keys}


def drawn_pair(dice: Random) -> tuple[Flavor, Image]:
    """Return a small flavor and an image with a few requirements each."""
    specs = drawn(dice, SPECS)
    flavor = Flavor("f", dice.choice([1, 2, 4]), 1024, extra_specs=specs)
    return flavor, Image("i", properties=drawn(dice, PROPERTIES))


def test_whatever_some_build_takes_is_refused_neither_as_flavor_nor_as_image() -> None:
    dice, taken = Random(7), 0
    for _ in range(PAIRS):
        flavor, image = drawn_pair(dice)
        try:
            refuse_contradictions(flavor, image)
        except Rejected:
            continue
        if _says_an_unused_mask(flavor, image):
            continue
        taken += 1
        refuse_flavor(flavor)
        refuse_image(image)
    assert taken > PAIRS / 20


def _says_an_unused_mask(flavor: Flavor, image: Image) -> bool:
    """A mask that cannot be read is refused where it stands, also if nobody asks for realtime."""
    asks = flavor.extra_specs.get("hw:cpu_realtime") == "yes"
    return not asks and image.properties.get("hw_cpu_realtime_mask") == "x"


def test_whatever_is_refused_alone_is_refused_with_any_other_for_a_reason_too() -> None:
    dice, refused = Random(8), 0
    for _ in range(PAIRS // 4):
        flavor, _ = drawn_pair(dice)
        try:
            refuse_flavor(flavor)
        except Rejected:
            refused += 1
        else:
            continue
        for _ in range(5):
            _, image = drawn_pair(dice)
            with pytest.raises(Rejected):
                refuse_contradictions(flavor, image)
    assert refused > PAIRS / 40


@pytest.mark.parametrize(
    ("specs", "key"),
    [
        ({"hw:cpu_realtime_mask": "^9999999999"}, "hw:cpu_realtime_mask"),
        ({"hw:numa_nodes": "0"}, "hw:numa_nodes"),
        ({"hw:cpu_thread_policy": "require", "hw:numa_nodes": "x"}, "hw:numa_nodes"),
        ({"hw:cpu_max_sockets": "1", "hw:cpu_max_cores": "1", "hw:cpu_max_threads": "1"}, "vcpus"),
        ({"hw:cpu_policy": "shared", "resources:PCPU": "4"}, "resources:PCPU"),
    ],
)
def test_a_flavor_that_no_image_can_save_is_refused_as_a_build_would(
    specs: Specs, key: str
) -> None:
    flavor = Flavor("f", 4, 1024, extra_specs=specs)
    with pytest.raises(Rejected) as refusal:
        refuse_flavor(flavor)
    assert refusal.value.key == key
    with suppress(Rejected):
        refuse_contradictions(flavor, Image("i"))
        assert "hw:cpu_realtime_mask" in specs  # nobody reads it: only wrong where it stands


@pytest.mark.parametrize(
    "specs",
    [
        {"hw:cpu_thread_policy": "require"},
        {"hw:cpu_dedicated_mask": "0"},
        {"hw:cpu_realtime": "yes"},
        {"hw:mem_encryption": "true"},
        {"hw:locked_memory": "true"},
        {"hw:numa_cpus.0": "0-3", "hw:numa_mem.0": "1024"},
        {"hw:numa_nodes": "3"},
        {"hw:tpm_model": "tpm-crb"},
        {"hw:cpu_max_sockets": "0"},
    ],
)
def test_a_flavor_that_waits_for_its_image_is_none_of_these(specs: Specs) -> None:
    refuse_flavor(Flavor("f", 4, 1024, extra_specs=specs))


@pytest.mark.parametrize(
    ("properties", "key"),
    [
        ({"hw_firmware_type": "own"}, "hw_firmware_type"),
        ({"hw_cpu_realtime_mask": "^9999999999"}, "hw_cpu_realtime_mask"),
        ({"hw_numa_nodes": 0}, "hw_numa_nodes"),
        ({"hw_cpu_sockets": "4", "hw_cpu_max_sockets": "2"}, "hw_cpu_sockets"),
    ],
)
def test_an_image_that_no_flavor_can_save_is_refused(properties: dict[str, Any], key: str) -> None:
    with pytest.raises(Rejected) as refusal:
        refuse_image(Image("i", properties=properties))
    assert refusal.value.key == key
