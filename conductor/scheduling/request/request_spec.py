"""The request spec: all that one instance requires of a host, in one frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from conductor.scheduling.request.group_rules import GroupRule
from conductor.scheduling.request.instance_shape import Shape, shape_of
from conductor.scheduling.request.shared_providers import ProviderAmounts
from conductor.store import Instance
from models.hardware import FrozenMap
from models.lifecycle import InstanceState
from models.messages.hints import Hints, hints_of

SOURCE: Final = "source_host"
"""Key of an instance's `request_spec`: the host that it moves from."""

PAGE_SIZES: Final = "page_sizes_kib"
"""Key of an instance's `request_spec`: of a live migration, the page size of each guest cell."""


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


def _hosts(instances: tuple[str, ...], host_of: Mapping[str, str | None]) -> frozenset[str]:
    return frozenset(host for instance in instances if (host := host_of.get(instance)) is not None)
