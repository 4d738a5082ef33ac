"""Which NUMA cells a guest is to have: equal shares, or the maps of flavor or image."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from models.errors import Rejected
from models.hardware import (
    HIGHEST_CPU,
    CpuMask,
    Flavor,
    Image,
    cpus_of,
    format_cpu_list,
    mask_of,
    span,
)
from models.hardware.requirements.parsing import cpu_list, values_of, whole_number, wrong

MOST_GUEST_CELLS: Final = 256
"""More than any hypervisor takes; it bounds what one request can make the fitter do."""

Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class NumaMaps:
    """vCPUs and MiB by guest cell as somebody wrote them, each with the key it stands under."""

    cpus: tuple[tuple[str, CpuMask], ...]
    memory_mib: tuple[tuple[str, int], ...]


def numa_nodes(flavor: Flavor, image: Image) -> int | None:
    """Return the number of guest NUMA cells required, None where neither sets it."""
    ours, theirs = values_of("numa_nodes", flavor, image)
    if ours and theirs is not None:
        rule = "flavor and image both say it; only one of them may"
        raise wrong("numa_nodes_conflict", "hw:numa_nodes", ours, rule)
    value = ours or theirs
    if value is None:
        return None
    key = "hw:numa_nodes" if ours else "hw_numa_nodes"
    nodes = whole_number(value, "numa_nodes_invalid", key, least=1)
    if nodes > MOST_GUEST_CELLS:
        raise wrong("numa_nodes_invalid", key, value, f"it must be at most {MOST_GUEST_CELLS}")
    return nodes


def numa_maps(flavor: Flavor, image: Image) -> NumaMaps | None:
    """Return the maps of vCPUs and memory, None where neither flavor nor image has any."""
    cpus = _one_side(flavor, image, "numa_cpus", _cpus_entry)
    memory = _one_side(flavor, image, "numa_mem", _memory_entry)
    return NumaMaps(cpus, memory) if cpus or memory else None


def equal_shares(flavor: Flavor, nodes: int, key: str) -> list[tuple[CpuMask, int]]:
    """Return the vCPUs and MiB of each guest cell when all get the same."""
    if flavor.vcpus % nodes or flavor.memory_mib % nodes:
        rule = (
            f"{flavor.vcpus} vCPUs and {flavor.memory_mib} MiB "
            "cannot be shared out equally; say who gets what in hw:numa_cpus.N and hw:numa_mem.N"
        )
        raise wrong("numa_asymmetric", key, nodes, rule)
    vcpus, memory_mib = flavor.vcpus // nodes, flavor.memory_mib // nodes
    return [(span(node * vcpus, (node + 1) * vcpus - 1), memory_mib) for node in range(nodes)]


def mapped_shares(flavor: Flavor, nodes: int, maps: NumaMaps) -> list[tuple[CpuMask, int]]:
    """Return the vCPUs and MiB of each guest cell as the maps say; both must be complete."""
    _check_complete(nodes, maps)
    _check_cpus(flavor, maps.cpus)
    total = sum(memory_mib for _, memory_mib in maps.memory_mib)
    if total != flavor.memory_mib:
        key, first = maps.memory_mib[0]
        rule = f"all parts together are {total} MiB, the flavor has {flavor.memory_mib}"
        raise wrong("numa_memory_mismatch", key, first, rule)
    return [
        (cpus, memory_mib)
        for (_, cpus), (_, memory_mib) in zip(maps.cpus, maps.memory_mib, strict=True)
    ]


def _check_complete(nodes: int, maps: NumaMaps) -> None:
    entries = (*maps.cpus, *maps.memory_mib)
    for listing in (maps.cpus, maps.memory_mib):
        if len(listing) > nodes:
            key = listing[nodes][0]
            rule = f"guest NUMA cells are numbered 0 to {nodes - 1}, whatever the host's ids"
            raise Rejected("numa_map_out_of_range", f"{key} is refused: {rule}", key=key)
    if not len(maps.cpus) == len(maps.memory_mib) == nodes:
        key = entries[-1][0]
        rule = f"vCPUs and memory must both be given for each of {nodes} NUMA cells"
        raise Rejected("numa_map_incomplete", f"{key} is not enough: {rule}", key=key)


def _check_cpus(flavor: Flavor, entries: tuple[tuple[str, CpuMask], ...]) -> None:
    unassigned = span(0, flavor.vcpus - 1)
    for key, cpus in entries:
        listing = format_cpu_list(cpus)
        if cpus >> flavor.vcpus:
            rule = f"the flavor has vCPUs 0 to {flavor.vcpus - 1} only"
            raise wrong("numa_cpu_out_of_range", key, listing, rule)
        if cpus & ~unassigned:
            rule = f"vCPU {cpus_of(cpus & ~unassigned)[0]} is in an earlier NUMA cell"
            raise wrong("numa_cpu_duplicate", key, listing, rule)
        unassigned &= ~cpus
    if unassigned:
        key, cpus = entries[-1]
        rule = f"{unassigned.bit_count()} vCPUs are in no NUMA cell: {format_cpu_list(unassigned)}"
        raise wrong("numa_cpus_unassigned", key, format_cpu_list(cpus), rule)


def _one_side(
    flavor: Flavor, image: Image, name: str, read: Callable[[object, str], Entry]
) -> tuple[tuple[str, Entry], ...]:
    """Return the map of whichever side has one; both sides having one is refused."""
    ours = _numbered(flavor.extra_specs, f"hw:{name}")
    theirs = _numbered(image.properties, f"hw_{name}")
    typed = image.properties.get(f"hw_{name}")
    if typed is not None:
        theirs = [*theirs, *_listed(typed, f"hw_{name}")]
    if ours and theirs:
        key = ours[0][0]
        rule = "flavor and image both say it; only one of them may"
        raise Rejected(f"{name}_conflict", f"{key} is refused: {rule}", key=key)
    return tuple((key, read(value, key)) for key, value in ours or theirs)


def _numbered(entries: Mapping[str, object], name: str) -> list[tuple[str, object]]:
    """Return the entries `name.0`, `name.1`, … in order; refuse gaps and other endings."""
    prefix = f"{name}."
    found: list[tuple[int, str]] = []
    for key in entries:
        if key.startswith(prefix):
            ending = key[len(prefix) :]
            if not (ending.isascii() and ending.isdigit() and str(int(ending[:9])) == ending):
                rule = "it must end in the number of a NUMA cell"
                raise Rejected("numa_map_key_invalid", f"{key} is refused: {rule}", key=key)
            found.append((int(ending), key))
    found.sort()
    for expected, (index, key) in enumerate(found):
        if index != expected:
            rule = f"{prefix}{expected} is missing before it"
            raise Rejected("numa_map_gap", f"{key} is refused: {rule}", key=key)
    return [(key, entries[key]) for _, key in found]


def _listed(value: object, key: str) -> list[tuple[str, object]]:
    if not isinstance(value, tuple):
        raise wrong(f"{key.removeprefix('hw_')}_invalid", key, value, "it must be a list")
    return [(key, item) for item in value]


def _cpus_entry(value: object, key: str) -> CpuMask:
    if not isinstance(value, tuple):
        return cpu_list(value, "numa_cpus_invalid", key)
    cpus = [whole_number(cpu, "numa_cpus_invalid", key) for cpu in value]
    if max(cpus, default=0) > HIGHEST_CPU:
        rule = f"the highest CPU number is {HIGHEST_CPU}"
        raise wrong("numa_cpus_invalid", key, max(cpus), rule)
    return mask_of(cpus)


def _memory_entry(value: object, key: str) -> int:
    return whole_number(value, "numa_mem_invalid", key)
