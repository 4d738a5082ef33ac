"""What an operator sets aside on a host: CPUs for shared and for dedicated use, huge pages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from models.errors import Rejected
from models.hardware import CpuMask, format_cpu_list
from models.hardware.requirements.memory_requirements import size_in_kib
from models.hardware.requirements.parsing import cpu_list, whole_number, wrong

_PAGES: Final = "reserved_huge_pages"
_INVALID: Final = "reserved_huge_pages_invalid"


@dataclass(frozen=True, slots=True)
class ReservedPages:
    """Pages of one size in one NUMA cell that no guest gets."""

    node: int
    size_kib: int
    count: int


@dataclass(frozen=True, slots=True)
class HostConfig:
    """The CPU sets that are configured, None where one is not, and the reserved pages.

    `legacy_cpus` is the older single set, for shared and dedicated use alike.
    """

    shared_cpus: CpuMask | None
    dedicated_cpus: CpuMask | None
    legacy_cpus: CpuMask | None
    reserved_pages: tuple[ReservedPages, ...] = ()


def host_config(
    shared: str | None = None,
    dedicated: str | None = None,
    legacy: str | None = None,
    reserved: Sequence[Mapping[str, object]] = (),
) -> HostConfig:
    """Return a host's settings as values; raise `Rejected` with the key at fault.

    An empty text is a set that is not configured; one that its exclusions leave empty is
    refused, and so is a CPU in the shared and the dedicated set.
    """
    sets = HostConfig(
        _cpu_set("shared", shared),
        _cpu_set("dedicated", dedicated),
        _cpu_set("legacy", legacy),
        _reserved_pages(reserved),
    )
    both = (sets.shared_cpus or 0) & (sets.dedicated_cpus or 0)
    if both:
        rule = f"CPU {format_cpu_list(both)} is in the shared set too"
        raise wrong("cpu_in_both_sets", "dedicated", dedicated, rule)
    return sets


def _cpu_set(key: str, text: str | None) -> CpuMask | None:
    if not text:
        return None
    cpus = cpu_list(text, "cpu_set_invalid", key)
    if not cpus:
        raise wrong("cpu_set_empty", key, text, "it leaves no CPU")
    return cpus


def _reserved_pages(entries: Sequence[Mapping[str, object]]) -> tuple[ReservedPages, ...]:
    """Return the pages by node and size."""
    found: dict[tuple[int, int], ReservedPages] = {}
    for position, entry in enumerate(entries):
        pages = _entry(entry, f"{_PAGES}.{position}")
        place = pages.node, pages.size_kib
        if place in found:
            rule = f"pages of {pages.size_kib} KiB on node {pages.node} are reserved already"
            raise wrong(_INVALID, f"{_PAGES}.{position}", dict(entry), rule)
        found[place] = pages
    return tuple(found[place] for place in sorted(found))


def _entry(entry: Mapping[str, object], key: str) -> ReservedPages:
    for field in ("node", "size", "count"):
        if entry.get(field) is None:
            raise Rejected(_INVALID, f"{key}.{field} is missing", key=f"{key}.{field}")
    size_kib = size_in_kib(str(entry["size"]))
    if size_kib is None:
        rule = "it must be whole KiB, as a number or as 2MB or 1GiB"
        raise wrong(_INVALID, f"{key}.size", entry["size"], rule)
    return ReservedPages(
        whole_number(entry["node"], _INVALID, f"{key}.node"),
        size_kib,
        whole_number(entry["count"], _INVALID, f"{key}.count"),
    )
