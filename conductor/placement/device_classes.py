"""Devices that a flavor passes through to its guests, counted as resource classes of their own.

A flavor names an alias and a count (`pci_passthrough:alias` = `gpu:2`); a host offers a pool of
devices under the alias in the pool's tags, else under vendor and product. How many are left is
a matter of amounts, and exact; which NUMA cells they are near is the fitter's to say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from models.errors import Rejected
from models.hardware import DEVICE_CLASS, Flavor, HostTopology, Image, PciRequest, device_class
from models.hardware.requirements.device_requirements import pci_numa_policy

SPEC: Final = "pci_passthrough:alias"
MOST: Final = 64
"""More devices of one alias than this fit no guest."""

_ALIAS_COUNT: Final = re.compile(r"([A-Za-z0-9_-]{1,64}):([0-9]{1,3})")


def device_requirements(flavor: Flavor) -> Mapping[str, int]:
    """Return how many devices of each alias the flavor asks for.

    Raises `Rejected` (`pci_alias_invalid`) for anything but `ALIAS:COUNT`, comma separated.
    """
    counts: Counter[str] = Counter()
    for part in filter(None, map(str.strip, flavor.extra_specs.get(SPEC, "").split(","))):
        found = _ALIAS_COUNT.fullmatch(part)
        if found is None or not 1 <= int(found[2]) <= MOST:
            rule = f"should be ALIAS:COUNT, comma separated, each count from 1 to {MOST}"
            raise Rejected("pci_alias_invalid", f"{SPEC} is {part[:40]!r}: {rule}", key=SPEC)
        counts[found[1]] += int(found[2])
    return counts


def device_requests(
    flavor: Flavor, image: Image, requested: Mapping[str, int]
) -> tuple[PciRequest, ...]:
    """Return the devices among all that is `requested` by class, as the fitter takes them.

    By class, whatever asks for it: the alias of a flavor or `resources:` and its groups.
    """
    policy = pci_numa_policy(flavor, image)
    aliases = {device_class(alias): alias for alias in device_requirements(flavor)}
    return tuple(
        PciRequest(aliases.get(name, name), count, (), policy, name)
        for name, count in sorted(requested.items())
        if name.startswith(DEVICE_CLASS)
    )


def device_totals(topology: HostTopology) -> Mapping[str, int]:
    """Return how many devices a host has of each resource class."""
    totals: Counter[str] = Counter()
    for pool in topology.pci_pools:
        totals[pool.resource_class] += pool.count
    return totals
