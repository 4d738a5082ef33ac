"""How a guest's vCPUs are to be backed: the policies of flavor and image, and their conflicts."""

from dataclasses import dataclass
from typing import Final

from models.errors import Rejected
from models.hardware import (
    DEDICATED,
    ISOLATE,
    MIXED,
    PREFER,
    REQUIRE,
    SHARE,
    SHARED,
    CpuMask,
    Flavor,
    Image,
    span,
)
from models.hardware.requirements.parsing import (
    cpu_list,
    flag,
    one_of,
    values_of,
    whole_number,
    wrong,
)

CPU_POLICIES: Final = (SHARED, DEDICATED, MIXED)
THREAD_POLICIES: Final = (PREFER, REQUIRE, ISOLATE)
EMULATOR_POLICIES: Final = (SHARE, ISOLATE)

_TRAIT: Final = "HW_CPU_HYPERTHREADING"
_TRAIT_POLICIES: Final = {"required": REQUIRE, "forbidden": ISOLATE}


@dataclass(frozen=True, slots=True)
class CpuRequirement:
    """The effective policies; `dedicated` are the vCPUs that get host CPUs of their own."""

    policy: str | None
    thread_policy: str | None
    dedicated: CpuMask
    emulator_threads_policy: str | None


def cpu_requirement(flavor: Flavor, image: Image) -> CpuRequirement:
    """Return how the vCPUs are backed once flavor, image, resources and traits are combined.

    Raises `Rejected` for every value and every combination that means nothing.
    """
    policy = cpu_policy(flavor, image)
    thread_policy = cpu_thread_policy(flavor, image)
    realtime = realtime_cpus(flavor, image)
    masked = dedicated_cpus(flavor)
    emulator = emulator_threads_policy(flavor)
    policy = _policy_of_resources(flavor, policy, emulator)
    thread_policy = _thread_policy_of_trait(flavor, image, thread_policy)
    if policy == MIXED:
        return CpuRequirement(policy, thread_policy, _mixed_cpus(masked, realtime), emulator)
    if masked:
        raise Rejected(
            "dedicated_mask_needs_mixed",
            f"hw:cpu_dedicated_mask asks for some dedicated vCPUs: the CPU policy must be {MIXED}",
            key="hw:cpu_dedicated_mask",
        )
    if policy == DEDICATED:
        return CpuRequirement(policy, thread_policy, _all_vcpus(flavor), emulator)
    _refuse_pinning_requirements(flavor, image, thread_policy, realtime, emulator)
    return CpuRequirement(policy, thread_policy, 0, emulator)


def cpu_policy(flavor: Flavor, image: Image) -> str | None:
    """Return the CPU policy as written, the flavor's before the image's."""
    ours, theirs = values_of("cpu_policy", flavor, image)
    if ours:
        one_of(ours, CPU_POLICIES, "cpu_policy_invalid", "hw:cpu_policy")
    image_policy = (
        None
        if theirs is None
        else one_of(theirs, CPU_POLICIES, "cpu_policy_invalid", "hw_cpu_policy")
    )
    wins_over = {DEDICATED: CPU_POLICIES, MIXED: (SHARED, MIXED), SHARED: (SHARED,)}
    if ours and image_policy and image_policy not in wins_over[ours]:
        rule = f"the image wants {image_policy}, which this flavor does not grant"
        raise wrong("cpu_policy_conflict", "hw:cpu_policy", ours, rule)
    return ours or image_policy


def cpu_thread_policy(flavor: Flavor, image: Image) -> str | None:
    """Return the thread policy as written; a flavor's `prefer` stands beside any image."""
    ours, theirs = values_of("cpu_thread_policy", flavor, image)
    if ours is not None:
        one_of(ours, THREAD_POLICIES, "cpu_thread_policy_invalid", "hw:cpu_thread_policy")
    image_policy = (
        None
        if theirs is None
        else one_of(theirs, THREAD_POLICIES, "cpu_thread_policy_invalid", "hw_cpu_thread_policy")
    )
    if ours and ours != PREFER and image_policy not in (None, ours):
        rule = f"the image wants {image_policy}"
        raise wrong("cpu_thread_policy_conflict", "hw:cpu_thread_policy", ours, rule)
    return ours or image_policy


def realtime_cpus(flavor: Flavor, image: Image) -> CpuMask | None:
    """Return the realtime vCPUs, None without realtime; the image's mask beats the flavor's."""
    if not flag(flavor.extra_specs.get("hw:cpu_realtime")):
        return None
    ours, theirs = values_of("cpu_realtime_mask", flavor, image)
    emulator = emulator_threads_policy(flavor)
    everything = _all_vcpus(flavor)
    key = "hw_cpu_realtime_mask" if theirs else "hw:cpu_realtime_mask"
    mask = theirs or ours
    code = "realtime_mask_invalid"
    if not mask:
        key, mask, cpus = "hw:cpu_realtime", "without a mask", everything
    else:
        cpus = _mask_of_vcpus(mask, flavor, code, key)
    if not cpus:
        raise wrong(code, key, mask, "it leaves no realtime vCPU")
    if cpus & ~everything:
        raise wrong(code, key, mask, f"the flavor has vCPUs 0 to {flavor.vcpus - 1} only")
    if cpus == everything and emulator is None:
        rule = "one vCPU must stay out of realtime unless hw:emulator_threads_policy is set"
        raise wrong(code, key, mask, rule)
    return cpus


def dedicated_cpus(flavor: Flavor) -> CpuMask | None:
    """Return the vCPUs that the flavor's mask makes dedicated, None without a mask."""
    key, code = "hw:cpu_dedicated_mask", "dedicated_mask_invalid"
    mask = flavor.extra_specs.get(key)
    if not mask:
        return None
    everything = _all_vcpus(flavor)
    cpus = _mask_of_vcpus(mask, flavor, code, key)
    if cpus & ~everything:
        raise wrong(code, key, mask, f"the flavor has vCPUs 0 to {flavor.vcpus - 1} only")
    if cpus in (0, everything):
        raise wrong(code, key, mask, "some vCPUs must be dedicated and some shared")
    return cpus


def emulator_threads_policy(flavor: Flavor) -> str | None:
    """Return where the emulator's threads run: share, isolate, or None where neither sets one."""
    key = "hw:emulator_threads_policy"
    policy = flavor.extra_specs.get(key)
    return one_of(policy, EMULATOR_POLICIES, f"{key[3:]}_invalid", key) if policy else None


def _policy_of_resources(flavor: Flavor, policy: str | None, emulator: str | None) -> str | None:
    """Return the CPU policy that explicit VCPU or PCPU resources imply, else the given one."""
    shared, shared_key = _resources(flavor, "VCPU")
    pinned, pinned_key = _resources(flavor, "PCPU")
    if not (shared or pinned):
        return policy
    code, key = "cpu_resources_conflict", pinned_key if pinned else shared_key
    if policy:
        raise wrong(code, key, pinned or shared, f"the CPU policy {policy} says it already")
    if shared and pinned:
        raise wrong(code, key, pinned, f"{shared_key} asks for shared CPUs at once")
    if not pinned:
        return SHARED
    right = flavor.vcpus + 1 if emulator == ISOLATE else flavor.vcpus
    if pinned != right:
        rule = f"it must be {right}, a CPU for each vCPU and for isolated emulator threads"
        raise wrong("cpu_resources_mismatch", key, pinned, rule)
    return DEDICATED


def _resources(flavor: Flavor, resource_class: str) -> tuple[int, str]:
    """Return how many of a resource class all request groups ask for, and a key that does."""
    total, where = 0, f"resources:{resource_class}"
    for key, value in flavor.extra_specs.items():
        if key.startswith("resources") and _is_numbered(key, "resources", resource_class):
            amount = whole_number(value, "cpu_resources_invalid", key)
            total += amount
            where = key if amount else where
    return total, where


def _thread_policy_of_trait(flavor: Flavor, image: Image, policy: str | None) -> str | None:
    """Return the thread policy that the hyperthreading trait implies, else the given one."""
    value, key = _hyperthreading_trait(flavor, image)
    if value is None:
        return policy
    if policy:
        rule = f"the CPU thread policy {policy} says it already"
        raise wrong("hyperthreading_trait_conflict", key, value, rule)
    return _TRAIT_POLICIES[value]


def _hyperthreading_trait(flavor: Flavor, image: Image) -> tuple[str | None, str]:
    """Return the value of the hyperthreading trait and its key; request groups must agree."""
    found: tuple[str | None, str] = None, f"trait:{_TRAIT}"
    for key, value in flavor.extra_specs.items():
        if key.startswith("trait") and _is_numbered(key, "trait", _TRAIT):
            one_of(value, _TRAIT_POLICIES, "trait_invalid", key)
            if found[0] not in (None, value):
                rule = f"{found[1]} says {found[0]}"
                raise wrong("hyperthreading_trait_conflict", key, value, rule)
            found = value, key
    return found if found[0] else _hyperthreading_of_image(image)


def _hyperthreading_of_image(image: Image) -> tuple[str | None, str]:
    required = image.properties.get("traits_required")
    if isinstance(required, tuple) and _TRAIT in required:
        return "required", "traits_required"
    key = f"trait:{_TRAIT}"
    theirs = image.properties.get(key)
    if theirs is None:
        return None, key
    return one_of(theirs, ("required",), "trait_invalid", key), key


def _is_numbered(key: str, prefix: str, name: str) -> bool:
    """Say whether the key is `prefix:name` or `prefixN:name` with a group number N above 0."""
    group, colon, rest = key[len(prefix) :].partition(":")
    if not colon or rest != name:
        return False
    return not group or (group.isascii() and group.isdigit() and group[0] != "0")


def _mixed_cpus(masked: CpuMask | None, realtime: CpuMask | None) -> CpuMask:
    key = "hw:cpu_dedicated_mask"
    if masked and realtime:
        raise Rejected(
            "mixed_needs_one_mask",
            f"{key} and hw:cpu_realtime both say which vCPUs are dedicated: use one",
            key=key,
        )
    cpus = masked or realtime
    if not cpus:
        rule = f"{key} or hw:cpu_realtime must say which vCPUs are dedicated"
        raise wrong("mixed_needs_one_mask", "hw:cpu_policy", MIXED, rule)
    return cpus


def _refuse_pinning_requirements(
    flavor: Flavor,
    image: Image,
    thread_policy: str | None,
    realtime: CpuMask | None,
    emulator: str | None,
) -> None:
    """Refuse, for shared CPUs, what only dedicated ones can grant."""
    rule = "only dedicated CPUs can grant it"
    if thread_policy:
        key = _thread_policy_key(flavor, image)
        raise wrong("cpu_thread_policy_needs_dedicated", key, thread_policy, rule)
    if emulator == ISOLATE:
        key = "hw:emulator_threads_policy"
        raise wrong("emulator_threads_policy_needs_dedicated", key, emulator, rule)
    if realtime:
        raise wrong("realtime_needs_dedicated", "hw:cpu_realtime", True, rule)


def _thread_policy_key(flavor: Flavor, image: Image) -> str:
    ours, theirs = values_of("cpu_thread_policy", flavor, image)
    if ours:
        return "hw:cpu_thread_policy"
    return "hw_cpu_thread_policy" if theirs else _hyperthreading_trait(flavor, image)[1]


def _mask_of_vcpus(mask: object, flavor: Flavor, code: str, key: str) -> CpuMask:
    """Return the vCPUs of a mask; one that begins with an exclusion means all but those."""
    text = str(mask).strip()
    if text.startswith("^"):
        text = f"0-{flavor.vcpus - 1},{text}"
    return cpu_list(text, code, key)


def _all_vcpus(flavor: Flavor) -> CpuMask:
    return span(0, flavor.vcpus - 1)
