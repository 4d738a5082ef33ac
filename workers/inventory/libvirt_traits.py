"""The traits of a host that runs guests on libvirt and QEMU: what its guests may ask for by name.

Only what the adapter gives a guest is promised. libvirt tells most of it in its domain
capabilities; what QEMU has on every x86 machine, and libvirt lists nowhere, is in a table here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import Element, ParseError

import os_traits
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from models.errors import Rejected
from models.messages.guests.hardware_traits import (
    NAMES_ALL,
    PACKED_RING,
    SECURE_BOOT,
    STATELESS,
    bus_trait,
    firmware_trait,
    interface_trait,
    machine_trait,
    sound_trait,
    tpm_model_trait,
    tpm_version_trait,
    video_trait,
)
from models.messages.guests.requested_hardware import INTERFACES, SOUNDS

_STANDARD: Final = frozenset(map(str, os_traits.get_traits()))
_ALWAYS: Final = (NAMES_ALL, "COMPUTE_IMAGE_TYPE_QCOW2", "COMPUTE_IMAGE_TYPE_RAW")
_X86: Final = (
    firmware_trait("bios"),
    "COMPUTE_MIGRATE_AUTO_CONVERGE",
    PACKED_RING,
    *map(interface_trait, INTERFACES),
    *map(sound_trait, SOUNDS),
)
"""Devices of every QEMU for x86 that libvirt 9 knows; its capabilities do not list them."""
_FLAGS: Final = {
    # libvirt and the kernel spell them differently; both without punctuation.
    "pclmuldq": ("CLMUL",),
    "pclmulqdq": ("CLMUL",),
    "fma": ("FMA3",),
    "pni": ("SSE3",),
    "bmi1": ("BMI",),
    "aes": ("AESNI",),
    "shani": ("SHA",),
    "rtm": ("TSX",),
    "vmx": ("VMX", "INTEL_VMX"),
    "svm": ("SVM", "AMD_SVM"),
    "vaes": ("AVX512VAES",),
    "gfni": ("AVX512GFNI",),
    "vpclmulqdq": ("AVX512VPCLMULQDQ",),
    "pcid": ("INTEL_PCID",),
    "mdclear": ("INTEL_MD_CLEAR",),
    "ibpb": ("AMD_IBPB",),
    "virtssbd": ("AMD_VIRT_SSBD",),
}
_PREFIX: Final = "HW_CPU_X86_"
_PC: Final = re.compile(r"pc|q35|pc-(i440fx|q35)-[0-9.]{1,20}")
_WITH_IDE: Final = re.compile(r"pc|pc-i440fx-.*")


@dataclass(frozen=True, slots=True)
class DomainCapabilities:
    """What guests of one kind can be given.

    `granted` and `withheld` are the CPU features, without punctuation, that the best migratable
    CPU model has besides, or lacks of, the named model that libvirt describes it by.
    """

    virtualization: str
    emulator: str
    architecture: str
    machine_type: str
    max_vcpus: int
    traits: frozenset[str]
    granted: frozenset[str]
    withheld: frozenset[str]


def domain_capabilities(text: str) -> DomainCapabilities:
    """Return what `virsh domcapabilities` says; raise `Rejected` (`xml_invalid`) for other XML."""
    root = _parsed(text)
    vcpus = root.find("vcpu")
    most = "" if vcpus is None else vcpus.get("max", "")
    if root.tag != "domainCapabilities" or not re.fullmatch("[0-9]{1,9}", most):
        message = "it has no domainCapabilities/vcpu with a number `max`"
        raise Rejected("xml_invalid", message, key="domainCapabilities")
    architecture = root.findtext("arch", "")
    return DomainCapabilities(
        virtualization=root.findtext("domain", ""),
        emulator=root.findtext("path", ""),
        architecture=architecture,
        machine_type=root.findtext("machine", ""),
        max_vcpus=int(most),
        traits=frozenset(_traits(root, architecture)) & _STANDARD,
        granted=frozenset(_features(root, "require")),
        withheld=frozenset(_features(root, "disable")),
    )


def machine_traits(text: str, architecture: str) -> frozenset[str]:
    """Return the traits of the machine types that `virsh capabilities` lists for an architecture.

    Of a PC's: a guest of ours boots on no other, such as a microvm. Raises `Rejected`
    (`xml_invalid`) for other XML.
    """
    path = f"guest/arch[@name='{architecture}']/machine"
    names = {machine.text or "" for machine in _parsed(text).iterfind(path)}
    machines = {name for name in names if _PC.fullmatch(name)}
    buses = {bus_trait("ide")} if any(_WITH_IDE.fullmatch(name) for name in machines) else set()
    return frozenset({*map(machine_trait, machines), *buses})


def cpu_traits(found: DomainCapabilities, host_flags: frozenset[str]) -> frozenset[str]:
    """Return the traits of the CPU that guests see; `host_flags` are those of `/proc/cpuinfo`.

    Under KVM guests see what the host has and libvirt does not withhold. An emulated CPU has
    nothing of the host's: only what libvirt names is promised.
    """
    if found.virtualization == "kvm":
        names = _named(map(_plain, host_flags)) - _named(found.withheld)
    else:
        names = _named(found.granted)
    if "AVX512F" not in names:
        # Some CPUs have the like of them for shorter registers; the names promise the long ones.
        names = {name for name in names if not name.startswith("AVX512")}
    return frozenset(_PREFIX + name for name in names) & _STANDARD


def _parsed(text: str) -> Element:
    try:
        root: Element = fromstring(text)
    except (ParseError, DefusedXmlException) as error:
        raise Rejected("xml_invalid", f"the XML cannot be read: {error}") from None
    return root


def _named(flags: Iterable[str]) -> set[str]:
    return {name for flag in flags for name in _FLAGS.get(flag, (flag.upper(),))}


def _traits(root: Element, architecture: str) -> Iterator[str]:
    yield from _ALWAYS
    yield f"HW_ARCH_{architecture.upper()}"
    yield f"COMPUTE_ARCH_{architecture.upper()}"
    if architecture == "x86_64":
        yield from _X86
    for bus in _values(root, "devices/disk", "bus"):
        yield bus_trait(bus)
    for model in _values(root, "devices/video", "modelType"):
        yield video_trait(model)
    yield from _firmware(root)
    yield from _tpm(root)


def _firmware(root: Element) -> Iterator[str]:
    if "efi" not in _values(root, "os", "firmware"):
        return
    yield firmware_trait("uefi")
    yield STATELESS
    if "yes" in _values(root, "os/loader", "secure"):
        yield SECURE_BOOT


def _tpm(root: Element) -> Iterator[str]:
    # libvirt lists the emulator only where swtpm is installed.
    if "emulator" not in _values(root, "devices/tpm", "backendModel"):
        return
    # Before libvirt 8.6 versions were not told: its emulators had both.
    for version in _values(root, "devices/tpm", "backendVersion") or ("1.2", "2.0"):
        yield tpm_version_trait(version)
    for model in _values(root, "devices/tpm", "model"):
        yield tpm_model_trait(model)


def _values(root: Element, path: str, name: str) -> tuple[str, ...]:
    """Return the values of an enumeration of what is supported, none where it is not."""
    element = root.find(path)
    if element is None or element.get("supported") != "yes":
        return ()
    return tuple(item.text or "" for item in element.iterfind(f"enum[@name='{name}']/value"))


def _features(root: Element, policy: str) -> Iterator[str]:
    for mode in root.iterfind("cpu/mode[@name='host-model']"):
        for feature in mode.iterfind(f"feature[@policy='{policy}']"):
            yield _plain(feature.get("name", ""))


def _plain(flag: str) -> str:
    return re.sub("[._-]", "", flag)
