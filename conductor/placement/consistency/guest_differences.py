"""Whether a guest is on its host as the database says: its CPUs, NUMA cells, pages and size (pure).

Somebody may have pinned it by hand, or resized it. Then its host's accounts are wrong: what it
really uses would be offered to others.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Final

from conductor.store import Instance
from models.errors import Rejected
from models.hardware import PlacedCell, format_cpu_list
from models.messages.base import parse
from models.messages.hardware.hardware_json import placement_from_json
from models.messages.hardware.hardware_shapes import PlacementShape
from models.messages.internal import Domain

GUESTS_DIFFER: Final = "guests are not as placed"
"""How the reason of a host begins that has such guests."""


def difference(instance: Instance, domain: Domain) -> str | None:
    """Return in words how a guest is otherwise than its instance says, None where it is not."""
    if not domain.vcpus and not domain.memory_mib:
        return None  # it cannot be read, which the host says by itself
    found = [*_of_size(instance, domain), *_of_place(instance, domain)]
    return f"{instance.id} has {', '.join(found)}" if found else None


def _of_size(instance: Instance, domain: Domain) -> Iterator[str]:
    flavor = instance.flavor
    if domain.vcpus != flavor.vcpus:
        yield f"{domain.vcpus} vCPUs, not {flavor.vcpus}"
    if domain.memory_mib != flavor.memory_mib:
        yield f"{domain.memory_mib} MiB, not {flavor.memory_mib}"


def _of_place(instance: Instance, domain: Domain) -> Iterator[str]:
    ours = instance.placement.cells if instance.placement is not None else ()
    try:
        theirs = _cells_of(domain)
    except Rejected as error:
        yield f"a placement that cannot be read ({error.message})"
        return
    for here, there in zip_longest(ours, theirs):
        if here == there:
            continue
        if here is None or there is None:
            yield f"{len(theirs)} NUMA cells, not {len(ours)}"
            return
        yield from _of_cell(here, there)


def _of_cell(here: PlacedCell, there: PlacedCell) -> Iterator[str]:
    """Yield what differs of one guest cell; `there` is on the host."""
    if here.host_cell != there.host_cell:
        yield f"guest cell {here.id} on NUMA cell {there.host_cell}, not {here.host_cell}"
    if here.pinning != there.pinning or here.allocated_cpus != there.allocated_cpus:
        is_on, should = format_cpu_list(there.allocated_cpus), format_cpu_list(here.allocated_cpus)
        if is_on == should:
            yield f"CPU {is_on} in another order"
        else:
            yield f"CPU {is_on or 'none'}, not {should or 'none'}"
    if here.memory_mib != there.memory_mib or here.page_size_kib != there.page_size_kib:
        yield f"{_memory(there)} in guest cell {here.id}, not {_memory(here)}"
    if here.shared_vcpus != there.shared_vcpus:
        counts = there.shared_vcpus.bit_count(), here.shared_vcpus.bit_count()
        yield f"{counts[0]} shared vCPUs in guest cell {here.id}, not {counts[1]}"


def _memory(cell: PlacedCell) -> str:
    pages = "" if cell.page_size_kib is None else f" in pages of {cell.page_size_kib} KiB"
    return f"{cell.memory_mib} MiB{pages}"


def _cells_of(domain: Domain) -> tuple[PlacedCell, ...]:
    if domain.placement is None:
        return ()
    return placement_from_json(parse(PlacementShape, domain.placement).model_dump()).cells
