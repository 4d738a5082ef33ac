"""Filters on free capacity: instances and operations per host, and amounts of resource classes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np

from conductor.placement.resources import DISK_GB, MEMORY_MB, PCPU, VCPU
from conductor.scheduling.fleet.filter_verdicts import Check
from conductor.scheduling.fleet.fleet_snapshot import Fleet, Numbers
from conductor.scheduling.fleet.host_columns import instances, left_column, most_column
from conductor.scheduling.request.request_spec import RequestSpec
from models.messages.catalogue import BUSY_LIMIT, COUNT_LIMIT

UNBOUNDED: Final = 2**31

_NAMES = {VCPU: "shared CPUs", PCPU: "dedicated CPUs", MEMORY_MB: "memory", DISK_GB: "disk"}
_UNITS = {MEMORY_MB: "MiB", DISK_GB: "GiB"}


def not_crowded(_spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """Within the limits of aggregates on instances and concurrent operations per host.

    Aggregate metadata `max_instances_per_host` and `max_io_ops_per_host`; of several the least.
    """
    for key, what, have in (
        (COUNT_LIMIT, "instances", fleet.column(instances)),
        (BUSY_LIMIT, "builds and moves under way", fleet.busy),
    ):
        for limit in fleet.tagged(key):
            if limit.value.isdecimal():
                most = int(limit.value)
                lacks = (f"has {most:,} {what} already", f"have {most:,} {what} already")
                yield Check(key.removesuffix("_per_host"), lacks, ~limit.hosts | (have < most))


def instances_left(fleet: Fleet) -> Numbers:
    """Return how many more instances aggregates let each row have, `UNBOUNDED` without limit."""
    left = np.full(len(fleet), UNBOUNDED, np.int64)
    for limit in fleet.tagged(COUNT_LIMIT):
        if limit.value.isdecimal():
            more = np.maximum(int(limit.value) - fleet.column(instances), 0)
            left[limit.hosts] = np.minimum(left, more)[limit.hosts]
    return left


def has_amounts(spec: RequestSpec, fleet: Fleet) -> Iterator[Check]:
    """Capacity for every amount: used + requested <= (total - reserved) * ratio.

    One guest is never larger than the host itself, whatever the ratio. For classes that other
    providers offer too, the larger free amount counts; which provider serves what is computed only
    for the hosts that are tried.
    """
    providers = fleet.providers.release(spec.allocated)
    for name, amount in spec.shape.least.items():
        left, most = fleet.column(left_column(name)), fleet.column(most_column(name))
        if providers:
            elsewhere = fleet.numbers(providers.most(fleet.hosts, name))
            left, most = np.maximum(left, elsewhere), np.maximum(most, elsewhere)
        what, unit = _NAMES.get(name, name), _UNITS.get(name, "")
        yield Check(
            f"no_room_{name.lower()}",
            (f"lacks free {what}", f"lack free {what}"),
            left >= amount,
            amount,
            partial(_not_negative, left),
            unit,
        )
        smaller = (f"is too small in {what}", f"are too small in {what}")
        yield Check(
            f"too_small_{name.lower()}",
            smaller,
            most >= amount,
            amount,
            partial(_not_negative, most),
            unit,
        )


def _not_negative(values: Numbers, rows: Numbers) -> Numbers:
    return np.maximum(values[rows], 0)
