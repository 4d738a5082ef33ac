"""What one instance asks of a host: everything the scheduler decides by, in one frozen value."""

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
from conductor.scheduling.request.shared_providers import Held
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
"""Where the request spec of an instance that moves says where it is."""

PAGE_SIZES: Final = "page_sizes_kib"
"""Where that of a guest that moves while it runs says the page size of each of its cells."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What all instances of one flavor and image ask, and the two themselves.

    Compared by identity, so that what was found out about a shape can be remembered cheaply.
    """

    flavor: Flavor
    image: Image | None
    guest: GuestTopology | None
    amounts: Mapping[str, int]
    aggregate_specs: Mapping[str, Condition]
    wishes: HostRequirements
    devices: tuple[PciRequest, ...]
    request: CandidateRequest
    least: Resources

    @property
    def has_place(self) -> bool:
        """Whether an instance of it has a place on its host: NUMA cells, or devices."""
        return self.guest is not None or bool(self.devices)


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """What an instance asks of its host.

    `host` and `zone` are the only ones allowed where named; `source` is where it moves from;
    `preferred` hosts come first, in their order; `ignored` were tried and refused. `beside` and
    `apart` are hosts. `held` is what it has, while it moves, of providers that are no hosts. One
    that is `forced` has no rule about hosts left but what is physical.
    """

    instance_id: str
    shape: Shape
    project_id: str = ""
    zone: str | None = None
    host: str | None = None
    source: str | None = None
    preferred: tuple[str, ...] = ()
    ignored: frozenset[str] = frozenset()
    beside: frozenset[str] | None = None
    apart: frozenset[str] = frozenset()
    group: GroupRule | None = None
    forced: bool = False
    held: Held = field(default_factory=lambda: FrozenMap({}))


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What of a demand is not in its own record: earlier tries, other instances, its group."""

    preferred: tuple[str, ...] = ()
    ignored: frozenset[str] = frozenset()
    host_of: Mapping[str, str | None] = field(default_factory=dict)
    group: GroupRule | None = None
    forced: bool = False
    held: Held = field(default_factory=lambda: FrozenMap({}))


def request_spec_of(instance: Instance, around: RequestContext) -> RequestSpec:
    """Return what the instance asks; raise `Rejected` for a flavor and image that contradict.

    What is built beside an instance without a host finds none. Later that wish has been granted:
    companions that have gone since bind nobody to a host.
    """
    spec, hints = instance.request_spec, said_hints(instance)
    beside = _hosts(hints.with_instances, around.host_of)
    bound = bool(hints.with_instances) and instance.state is InstanceState.BUILDING
    return RequestSpec(
        instance_id=instance.id,
        shape=shape_of(instance.flavor, instance.image, tuple(spec.get(PAGE_SIZES, ()))),
        project_id=instance.project_id,
        zone=spec.get("availability_zone"),
        host=spec.get("host"),
        source=spec.get(SOURCE),
        preferred=around.preferred,
        ignored=around.ignored,
        beside=beside if beside or bound else None,
        apart=_hosts(hints.apart_from, around.host_of),
        group=None if around.forced else around.group,
        forced=around.forced,
        held=around.held,
    )


def said_hints(instance: Instance) -> Hints:
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
    """Return the guest with these pages and no others, where any are said."""
    if guest is None or len(sizes_kib) != len(guest.cells):
        return guest
    cells = (
        replace(cell, page_size_kib=size) for cell, size in zip(guest.cells, sizes_kib, strict=True)
    )
    return replace(guest, cells=tuple(cells))


def place(shape: Shape, host: Host, *, pack: bool) -> Placement | Misfit | None:
    """Return where on the host's NUMA cells, and with which devices, the shape fits, or why not.

    None has no place: it asks for neither. Devices of a class that the host itself has none of
    are those of a provider below it, and only counted.
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
