"""What libvirt's domain capabilities promise guests, as traits."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.errors import Rejected
from workers.inventory.libvirt_traits import cpu_traits, domain_capabilities, machine_traits
from workers.inventory.traits import traits_of

FILES = Path(__file__).parent / "libvirt_files"
KVM = (FILES / "domain-capabilities-kvm.xml").read_text()
HOST = (FILES / "capabilities.xml").read_text()
EMULATED = (FILES / "domain-capabilities-qemu.xml").read_text()
FLAGS = frozenset({"sse", "sse2", "pni", "avx", "sha_ni", "pclmulqdq", "vaes", "ibpb"})


def test_devices_and_firmware_that_libvirt_lists_are_traits() -> None:
    found = domain_capabilities(KVM)
    assert (found.virtualization, found.emulator) == ("kvm", "/usr/bin/qemu-system-x86_64")
    assert (found.machine_type, found.max_vcpus) == ("pc-q35-7.2", 288)
    assert {
        "HW_ARCH_X86_64",
        "COMPUTE_ARCH_X86_64",
        "COMPUTE_FIRMWARE_BIOS",
        "COMPUTE_FIRMWARE_UEFI",
        "COMPUTE_SECURITY_UEFI_SECURE_BOOT",
        "COMPUTE_SECURITY_TPM_2_0",
        "COMPUTE_SECURITY_TPM_CRB",
        "COMPUTE_STORAGE_BUS_SCSI",
        "COMPUTE_GRAPHICS_MODEL_BOCHS",
        "COMPUTE_NET_VIF_MODEL_VIRTIO",
    } <= found.traits
    assert "COMPUTE_STORAGE_BUS_IDE" not in found.traits  # this machine type has none
    assert traits_of(sorted(found.traits))


def test_machine_types_of_a_pc_are_traits_and_the_older_ones_have_ide() -> None:
    traits = machine_traits(HOST, "x86_64")
    assert {
        "CUSTOM_MACHINE_TYPE_Q35",
        "CUSTOM_MACHINE_TYPE_PC",
        "CUSTOM_MACHINE_TYPE_PC_Q35_7_2",
        "CUSTOM_MACHINE_TYPE_PC_I440FX_2_12",
        "COMPUTE_STORAGE_BUS_IDE",
    } <= traits
    assert not {name for name in traits if "MICROVM" in name or "ISAPC" in name}
    assert traits_of(sorted(traits))
    newer = "".join(line for line in HOST.splitlines() if "i440fx" not in line)
    assert "COMPUTE_STORAGE_BUS_IDE" not in machine_traits(newer, "x86_64")
    assert machine_traits(HOST, "riscv64") == frozenset()


def test_without_swtpm_and_firmware_neither_is_promised() -> None:
    text = KVM.replace("<value>emulator</value>", "").replace("<value>efi</value>", "")
    traits = domain_capabilities(text).traits
    assert not {name for name in traits if "TPM" in name or "UEFI" in name}


def test_a_cpu_has_what_the_host_has_and_libvirt_does_not_withhold() -> None:
    traits = cpu_traits(domain_capabilities(KVM), FLAGS)
    assert {"HW_CPU_X86_SSE", "HW_CPU_X86_SSE2", "HW_CPU_X86_AMD_IBPB"} <= traits
    # Withheld as `avx`, `pni`, `sha-ni` and `pclmuldq`; the last has another name in the kernel.
    assert not traits & {"HW_CPU_X86_AVX", "HW_CPU_X86_SSE3", "HW_CPU_X86_SHA", "HW_CPU_X86_CLMUL"}


def test_names_of_avx_512_need_avx_512() -> None:
    found = domain_capabilities(KVM)
    assert "HW_CPU_X86_AVX512VAES" not in cpu_traits(found, FLAGS)
    assert "HW_CPU_X86_AVX512VAES" in cpu_traits(found, FLAGS | {"avx512f"})


def test_an_emulated_cpu_has_nothing_of_the_hosts() -> None:
    traits = cpu_traits(domain_capabilities(EMULATED), FLAGS)
    assert "HW_CPU_X86_MPX" in traits
    assert "HW_CPU_X86_AVX" not in traits


@pytest.mark.parametrize("text", ["", "<", "<capabilities/>", "<domainCapabilities/>"])
def test_other_xml_is_refused(text: str) -> None:
    with pytest.raises(Rejected, match=r"XML|domainCapabilities"):
        domain_capabilities(text)
