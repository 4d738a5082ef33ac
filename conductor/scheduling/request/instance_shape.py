"""The shape of an instance: what its flavor and image require, apart from any one request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from conductor.placement.device_classes import device_requests
from conductor.placement.host_requirements import HostRequirements, host_requirements_of
from conductor.placement.providers import Resources
from conductor.placement.request_groups import CandidateRequest
from conductor.placement.requested_amounts import largest_of, request_of, total_of
from conductor.placement.resources import amounts
from models.hardware import (
    Flavor,
    GuestTopology,
    Image,
    PciRequest,
    boots_from_volume,
)
from models.hardware.requirements.numa_constraints import guest_topology
from models.hardware.requirements.spec_operators import Condition, condition_of

AGGREGATE_SPEC: Final = "aggregate_instance_extra_specs:"
"""Prefix of the extra specs that require a host in an aggregate with that metadata."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What all instances of one flavor and image require, and the two themselves.

    Compared by identity, which makes it a cheap cache key.
    """

    flavor: Flavor
    image: Image | None
    guest: GuestTopology | None
    amounts: Mapping[str, int]
    aggregate_specs: Mapping[str, Condition]
    host_requirements: HostRequirements
    devices: tuple[PciRequest, ...]
    request: CandidateRequest
    least: Resources

    @property
    def has_place(self) -> bool:
        """Whether an instance of it has a place on its host: NUMA cells, or devices."""
        return self.guest is not None or bool(self.devices)


@lru_cache(maxsize=1024)
def shape_of(
    flavor: Flavor, image: Image | None, page_sizes_kib: tuple[int | None, ...] = ()
) -> Shape:
    """Return the shape of an instance; without an image it boots from volumes.

    The cells of a guest that runs have their page sizes already, in the order of the cells.
    """
    known = image or Image(id="")
    guest = _with_pages(guest_topology(flavor, known), page_sizes_kib)
    own = amounts(flavor, guest, volume_backed=boots_from_volume(image))
    request = request_of(flavor, own)
    return Shape(
        flavor,
        image,
        guest,
        own,
        {
            key.removeprefix(AGGREGATE_SPEC): condition_of(key, value)
            for key, value in flavor.extra_specs.items()
            if key.startswith(AGGREGATE_SPEC)
        },
        host_requirements_of(flavor, image),
        device_requests(flavor, known, total_of(request)),
        request,
        largest_of(request),
    )


def _with_pages(
    guest: GuestTopology | None, sizes_kib: tuple[int | None, ...]
) -> GuestTopology | None:
    """Return the guest with exactly these page sizes, where any are given."""
    if guest is None or len(sizes_kib) != len(guest.cells):
        return guest
    cells = (
        replace(cell, page_size_kib=size) for cell, size in zip(guest.cells, sizes_kib, strict=True)
    )
    return replace(guest, cells=tuple(cells))
