"""The request spec: all that one instance requires of a host, in one frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from conductor.placement.device_classes import device_requests
from conductor.placement.host_requirements import HostRequirements, host_requirements_of
from conductor.placement.providers import Resources
from conductor.placement.request_groups import CandidateRequest
from conductor.placement.requested_amounts import largest_of, request_of, total_of
from conductor.placement.resources import MEMORY_MB, VCPU, amounts
from conductor.scheduling.request.group_rules import GroupRule
from conductor.scheduling.request.shared_providers import ProviderAmounts
from conductor.store.records import Host, Instance
from models.hardware import (
    Flavor,
    FrozenMap,
    GuestTopology,
    Image,
    Limits,
    Misfit,
    PciRequest,
    Placement,
    boots_from_volume,
)
from models.hardware.fitting.device_assignment import placed_devices
from models.hardware.fitting.fit_guest import fit
from models.hardware.requirements.numa_constraints import guest_topology
from models.hardware.requirements.spec_operators import Condition, condition_of
from models.lifecycle import InstanceState
from models.messages.hints import Hints, hints_of

AGGREGATE_SPEC: Final = "aggregate_instance_extra_specs:"
"""Prefix of the extra specs that ask for a host in an aggregate with that metadata."""


SOURCE: Final = "source_host"
"""Key of an instance's `request_spec`: the host that it moves from."""

PAGE_SIZES: Final = "page_sizes_kib"
"""Key of an instance's `request_spec`: of a live migration, the page size of each guest cell."""


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


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """What an instance requires of its host.

    `host` and `zone` are the only ones allowed where named; `source` is where it moves from;
    `preferred` hosts come first, in their order; `ignored` ones were tried and refused.
    `companion_hosts` and `avoided_hosts` are those of the hints `same_host` and `different_host`.
    `allocated` is what it has, while it moves, of providers other than hosts. A `forced` spec is
    checked by the physical filters only.
    """

    instance_id: str
    shape: Shape
    project_id: str = ""
    zone: str | None = None
    host: str | None = None
    source: str | None = None
    preferred: tuple[str, ...] = ()
    ignored: frozenset[str] = frozenset()
    companion_hosts: frozenset[str] | None = None
    avoided_hosts: frozenset[str] = frozenset()
    group: GroupRule | None = None
    forced: bool = False
    allocated: ProviderAmounts = field(default_factory=lambda: FrozenMap({}))


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What a request spec has from outside the instance: earlier tries, other instances, group."""

    preferred: tuple[str, ...] = ()
    ignored: frozenset[str] = frozenset()
    host_of: Mapping[str, str | None] = field(default_factory=dict)
    group: GroupRule | None = None
    forced: bool = False
    allocated: ProviderAmounts = field(default_factory=lambda: FrozenMap({}))


def request_spec_of(instance: Instance, context: RequestContext) -> RequestSpec:
    """Return the instance's request spec; raise `Rejected` for a flavor and image that contradict.

    A build with `same_host` of instances that have no host finds none. Once built, the hint no
    longer binds it to companions that have been deleted.
    """
    spec, hints = instance.request_spec, scheduler_hints_of(instance)
    companion_hosts = _hosts(hints.with_instances, context.host_of)
    bound = bool(hints.with_instances) and instance.state is InstanceState.BUILDING
    return RequestSpec(
        instance_id=instance.id,
        shape=shape_of(instance.flavor, instance.image, tuple(spec.get(PAGE_SIZES, ()))),
        project_id=instance.project_id,
        zone=spec.get("availability_zone"),
        host=spec.get("host"),
        source=spec.get(SOURCE),
        preferred=context.preferred,
        ignored=context.ignored,
        companion_hosts=companion_hosts if companion_hosts or bound else None,
        avoided_hosts=_hosts(hints.apart_from, context.host_of),
        group=None if context.forced else context.group,
        forced=context.forced,
        allocated=context.allocated,
    )


def scheduler_hints_of(instance: Instance) -> Hints:
    """Return the scheduler hints of the instance's request."""
    return hints_of(instance.request_spec.get("scheduler_hints") or {})


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


def place(shape: Shape, host: Host, *, pack: bool) -> Placement | Misfit | None:
    """Return where on the host's NUMA cells, and with which devices, the shape fits, or why not.

    None for a shape that requests neither. Devices of a class that is not in the host's own
    inventory belong to a child provider, and are only counted.
    """
    # A host has a class in its inventory exactly where it has pools of it.
    devices = [device for device in shape.devices if device.resource_class in host.inventory]
    if shape.guest is None:
        return placed_devices(host.topology, devices)
    limits = limits_of(host)
    return fit(host.topology, shape.guest, limits, pack=pack, pci_requests=devices)


def limits_of(host: Host) -> Limits:
    """Return how far shared guests may over-commit the host's NUMA cells."""
    return Limits(_ratio(host, VCPU), _ratio(host, MEMORY_MB))


def _ratio(host: Host, resource_class: str) -> float:
    inventory = host.inventory.get(resource_class)
    return 1.0 if inventory is None else inventory.ratio


def _hosts(instances: tuple[str, ...], host_of: Mapping[str, str | None]) -> frozenset[str]:
    return frozenset(host for instance in instances if (host := host_of.get(instance)) is not None)
