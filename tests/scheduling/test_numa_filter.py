"""The coarse look at NUMA cells: it never rules out a host that the fitter would have taken."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from conductor.placement.resources import Ratios, inventory_of
from conductor.scheduling.filters.numa_filter import has_numa_cells
from conductor.scheduling.fleet.fleet_snapshot import Fleet
from conductor.scheduling.request.instance_shape import shape_of
from conductor.scheduling.request.request_spec import RequestSpec
from conductor.store import Host
from models.hardware import GuestTopology, HostCell, HostTopology, Misfit, PagePool, span
from models.hardware.fitting.fit_guest import fit
from models.messages.base import parse
from models.messages.hardware.hardware_json import guest_of, host_from_json
from models.messages.hardware.hardware_shapes import GuestShape
from models.messages.internal import Reservation
from tests.hardware.generator import random_case
from tests.scheduling.world import IMAGE, World, flavor, pinned, refusal, topology

CASES = 3_000


def passes(host: HostTopology, guest: GuestTopology) -> bool:
    shape = replace(shape_of(flavor(), IMAGE), guest=guest)
    fleet = Fleet([Host("h", host, {})])
    checks = has_numa_cells(RequestSpec("i", shape), fleet)
    return all(bool(check.passed[0]) for check in checks)


def test_whoever_the_fitter_takes_passes() -> None:
    taken = ruled_out = 0
    for seed in range(CASES):
        case = random_case(Random(seed))
        host = host_from_json(case["host"])
        guest = guest_of(parse(GuestShape, case["guest"]))
        fits, passed = not isinstance(fit(host, guest), Misfit), passes(host, guest)
        assert passed or not fits, f"case {seed} fits and is ruled out"
        taken += fits
        ruled_out += not passed
    assert taken > CASES // 10
    assert ruled_out > CASES // 10


def smt(free: int) -> HostTopology:
    """Return one NUMA cell of four cores of two threads, these CPUs of which are free."""
    siblings = tuple(0b11 << 2 * core for core in range(4))
    every = span(0, 7)
    cell = HostCell(0, 0, every, every, 8192, siblings, pinned_cpus=every & ~free)
    return HostTopology((cell,))


@pytest.mark.parametrize(
    ("policy", "free", "reason"),
    [
        ("isolate", 0b01_11_01_01, "1 lacks wholly free cores in one NUMA cell (need 2, best 1 on"),
        (
            "require",
            0b01_11_01_01,
            "1 lacks free dedicated CPUs with a free sibling in one NUMA cell (need 4, best 2 on",
        ),
    ],
)
def test_thread_policies_are_looked_at_for_all_hosts_at_once(
    policy: str, free: int, reason: str
) -> None:
    vcpus = 2 if policy == "isolate" else 4
    world = World()
    world.add_hosts(_host(smt(free)))
    line = refusal(world.build(pinned(vcpus=vcpus, **{"hw:cpu_thread_policy": policy})))
    assert reason in line


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        ("small", "free small pages"),
        ("large", "free large pages"),
        ("any", "free pages of one size"),
        ("2MB", "free pages of 2 MiB"),
        ("4", "free pages of 4 KiB"),
    ],
)
def test_pages_are_looked_at_for_all_hosts_at_once(size: str, reason: str) -> None:
    plain = topology(cells=1, memory_mib=1024)
    pools = (PagePool(4, 131_072), PagePool(2048, 256))
    cells = tuple(replace(cell, page_pools=pools) for cell in plain.cells)
    world = World()
    world.add_hosts(_host(HostTopology(cells)))
    line = refusal(world.build(pinned(memory_mib=600, **{"hw:mem_page_size": size})))
    assert line == f"1 host: 1 lacks {reason} in one NUMA cell (need 600 MiB, best 512 MiB on h)"


def _host(hardware: HostTopology) -> Host:
    return Host("h", hardware, inventory_of(hardware, 100, Reservation(), Ratios()))
