"""What a flavor and an image ask of the host itself: traits, capabilities, devices (pure).

Traits are those of the field (`HW_CPU_X86_AVX2`, `CUSTOM_…`): a flavor requires or forbids them,
an image only requires. A capability is a property of the host that has one value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from conductor.placement.requested_amounts import grouped_traits
from conductor.store import Host, UnitOfWork
from models.hardware import Flavor, FrozenMap, Image
from models.hardware.requirements.parsing import one_of, wrong
from models.hardware.requirements.spec_operators import Condition, condition_of
from models.messages.guests.hardware_traits import NAMES_ALL, hardware_traits
from models.messages.guests.requested_hardware import hardware_of

ARCHITECTURE: Final = "HW_ARCH_"
"""Prefix of the traits that name an architecture; a host without any has not said which it is."""

CAPABILITY: Final = "capabilities:"

ISOLATED_IMAGES: Final = "isolated_images"
"""Metadata of aggregates whose hosts take only these images, which go nowhere else."""

CAPABILITIES: Final[Mapping[str, Callable[[Host], str]]] = {
    "hypervisor_type": lambda host: host.hypervisor,
    "hypervisor_hostname": lambda host: host.name,
    "cell": lambda host: host.cell_id,
}
"""What a host has one value of, as flavors may ask for it (`capabilities:NAME`)."""

HYPERTHREADING: Final = "HW_CPU_HYPERTHREADING"
"""The trait of hosts with threads, which the hardware has by itself."""

_TRAIT: Final = re.compile(r"trait(?:\d+|_[A-Za-z0-9_-]+)?:(\S+)")


@dataclass(frozen=True, slots=True)
class HostRequirements:
    """Traits that a host must or must not have, its architecture, what it must say of itself.

    `hardware` are the traits of the virtual hardware that the guest asks for.
    """

    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    architecture: str | None = None
    capabilities: Mapping[str, Condition] = FrozenMap({})
    hardware: frozenset[str] = frozenset()


def host_requirements_of(flavor: Flavor, image: Image | None) -> HostRequirements:
    """Return what both ask of the host; raise `Rejected` where they contradict or are malformed.

    Codes: those of `named_requirements` and of `hardware_of`.
    """
    hardware = hardware_traits(hardware_of(flavor, image))
    return replace(named_requirements(flavor, image), hardware=hardware)


def named_requirements(flavor: Flavor, image: Image | None) -> HostRequirements:
    """Return what both ask of the host by its traits and capabilities, by name.

    Raises `Rejected`: `trait_invalid`, `traits_contradict`, `extra_spec_invalid`.
    """
    grouped = grouped_traits(flavor)
    rules = {
        found[1]: one_of(value, ("required", "forbidden"), "trait_invalid", key)
        for key, value in flavor.extra_specs.items()
        if key not in grouped and (found := _TRAIT.fullmatch(key))
    }
    forbidden = frozenset(trait for trait, how in rules.items() if how == "forbidden")
    by_image = _required_by(image) if image is not None else frozenset()
    for trait in sorted(by_image & forbidden):
        rule = "the flavor forbids it, the image requires it"
        raise wrong("traits_contradict", f"trait:{trait}", "forbidden", rule)
    required = frozenset(trait for trait, how in rules.items() if how == "required")
    return HostRequirements(
        required | by_image, forbidden, _architecture(image), FrozenMap(_capabilities(flavor))
    )


def has_trait(host: Host, trait: str) -> bool:
    """Say whether a host has a trait; that of threads follows from the hardware too."""
    if trait in host.traits:
        return True
    return trait == HYPERTHREADING and any(
        cell.threads_per_core > 1 for cell in host.topology.cells
    )


def gives_hardware(host: Host, trait: str) -> bool:
    """Say whether a host gives such virtual hardware, or has not said what it gives."""
    return trait in host.traits or NAMES_ALL not in host.traits


def is_of(host: Host, architecture: str) -> bool:
    """Say whether a host is of an architecture (a trait), or has not said of which."""
    named = [trait for trait in host.traits if trait.startswith(ARCHITECTURE)]
    return not named or architecture in named


def unmet_by(host: Host, requirements: HostRequirements) -> str | None:
    """Return the first requirement of traits and architecture that a host does not meet, if any."""
    for trait in sorted(requirements.required):
        if not has_trait(host, trait):
            return f"{host.name} lacks the trait {trait}"
    for trait in sorted(requirements.forbidden):
        if has_trait(host, trait):
            return f"{host.name} has the forbidden trait {trait}"
    for trait in sorted(requirements.hardware):
        if not gives_hardware(host, trait):
            return f"{host.name} cannot give its guests {trait}"
    if requirements.architecture is not None and not is_of(host, requirements.architecture):
        return f"{host.name} is of another architecture than {requirements.architecture}"
    return None


def isolated_from(uow: UnitOfWork, host: str, image: Image) -> str | None:
    """Say why a host is not for an image, where aggregates set hosts apart for images.

    As the scheduler's filter decides: such an image goes nowhere else, no other goes there.
    """
    apart = [
        (set(catalogue_entry.body.get("hosts", ())), {part.strip() for part in images.split(",")})
        for catalogue_entry in uow.catalogue.where(kind="aggregate")
        if (images := str((catalogue_entry.body.get("metadata") or {}).get(ISOLATED_IMAGES, "")))
    ]
    own = [hosts for hosts, images in apart if image.id in images]
    if own:
        here = any(host in hosts for hosts in own)
        return None if here else f"{host} is not set apart for it"
    if any(host in hosts for hosts, _ in apart):
        return f"{host} is set apart for other images"
    return None


def _required_by(image: Image) -> frozenset[str]:
    listed = image.properties.get("traits_required") or ()
    names = listed if isinstance(listed, tuple) else (listed,)
    flat = {
        found[1]
        for key, value in image.properties.items()
        if (found := _TRAIT.fullmatch(key)) and one_of(value, ("required",), "trait_invalid", key)
    }
    return frozenset(map(str, names)) | flat


def _architecture(image: Image | None) -> str | None:
    architecture = image.properties.get("hw_architecture") if image is not None else None
    return None if architecture is None else f"{ARCHITECTURE}{str(architecture).upper()}"


def _capabilities(flavor: Flavor) -> dict[str, Condition]:
    """Return the condition on each capability that the flavor names."""
    return {
        key.removeprefix(CAPABILITY): condition_of(key, value)
        for key, value in flavor.extra_specs.items()
        if key.startswith(CAPABILITY)
    }
