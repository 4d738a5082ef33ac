"""What fitting, reading flavors and streaming cases cost, beside the straightforward way.

Times are the least CPU time of many rounds: on a machine that others use too, wall time says
more about them. Only ratios within the run are asserted.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from typing import NamedTuple

from models.hardware import Flavor, Image, Misfit, Placement
from models.hardware.fitting.fit_guest import fit
from models.hardware.requirements.cpu_topology import best_topology, topology_bounds
from models.hardware.requirements.guest_requirements import GuestRequirements, all_requirements
from models.hardware.requirements.numa_constraints import guest_topology
from tests.benchmarks.hardware_cases import (
    Asked,
    case_lines,
    guest,
    host,
    knife_edge,
    with_affinity,
)
from tests.benchmarks.permuting import permuting_fit
from tests.benchmarks.report import Figure, report

MICRO = 1e6
KNIFE_EDGES = 400


def test_fitting() -> None:
    one = Asked(host(1), guest(1))
    four = Asked(host(4), guest(4))
    eight = Asked(host(16), guest(8))
    figures = [
        _fitting("1 guest cell on 1 of 32 threads", one, "<= 25"),
        _fitting("1 guest cell of 32 vCPUs on 1", Asked(host(1), guest(1, 32)), "<= 25"),
        _fitting("4 on 4", four, "<= 80"),
        _fitting("8 on 16, first choice free", eight, "<= 250"),
        _fitting("8 on 16 with networks, devices", with_affinity(eight), "<= 5,000"),
    ]
    figures += _beside_permuting(("1 on 1", one), ("4 on 4", four), ("8 on 16", eight))
    report("fitter", [*figures, *_impossible(), *_on_the_edge()])


def test_reading_flavors() -> None:
    pinned = {"hw:cpu_policy": "dedicated", "hw:numa_nodes": "2"}
    maps = {"hw:numa_cpus.0": "0-3", "hw:numa_cpus.1": "4-7"}
    maps |= {"hw:numa_mem.0": "4096", "hw:numa_mem.1": "4096"}
    image = Image("i", "image", {"hw_cpu_max_sockets": 2, "hw_firmware_type": "uefi"})
    equal = Flavor("f", 8, 8192, extra_specs={**pinned, "hw:cpu_thread_policy": "prefer"})
    mapped = Flavor("f", 8, 8192, extra_specs={**pinned, **maps})
    full = Flavor("f", 8, 8192, extra_specs={**pinned, **maps, **EVERYTHING})
    large = Flavor("f", 256, 8192)
    bounds = topology_bounds(large, image)
    report(
        "flavors",
        [
            _least("pinned, two cells", lambda: guest_topology(equal, image), "<= 30"),
            _least("pinned, two cells by maps", lambda: guest_topology(mapped, image), "<= 30"),
            _least(
                "all fields of guest",
                lambda: all_requirements(GuestRequirements(equal, image)),
                "<= 100",
            ),
            _least(
                "all fields, all used",
                lambda: all_requirements(GuestRequirements(full, image)),
                "<= 100",
            ),
            _least("best CPU topology of 256", lambda: best_topology(256, bounds), "<= 100"),
        ],
    )


def test_streaming(tmp_path: Path) -> None:
    short = _streamed(tmp_path, 20_000)
    long = _streamed(tmp_path, 100_000)
    nothing = _streamed(tmp_path, 0)
    report(
        "streaming",
        [
            Figure(
                "cases a second of CPU, start-up included", 20_000 / short.cpu_s, "1/s", ">= 5,000"
            ),
            Figure("cases a second of wall time, likewise", 20_000 / short.wall_s, "1/s"),
            Figure("start-up", nothing.cpu_s * 1e3, "ms CPU"),
            Figure("a further case", (long.cpu_s - short.cpu_s) / 80_000 * MICRO, "us CPU"),
            Figure("peak memory, 20,000 cases", short.peak_mib, "MiB"),
            Figure("peak memory, 100,000 cases", long.peak_mib, "MiB", "flat"),
        ],
    )
    assert long.peak_mib < short.peak_mib * 1.1


def _beside_permuting(*named: tuple[str, Asked]) -> list[Figure]:
    """Return how the straightforward way compares where it is at its best: the first will do.

    It checks less then (no thread policies, no reasons) and makes no placement.
    """
    figures = []
    for name, asked in named:
        ours = _time(partial(_fit, asked))
        theirs = _time(partial(_permute, asked))
        figures.append(Figure(f"{name}: permuting takes", theirs / ours, "times as long"))
    return figures


def _impossible() -> list[Figure]:
    """Return what a no costs: 8 guest cells where 7 host cells are left, on ever larger hosts."""
    times = {n: _time(partial(_fit, _seven_left(n)), rounds=40) for n in (16, 32, 64)}
    assert isinstance(_fit(_seven_left(16)), Misfit)
    affine = with_affinity(_seven_left(16))
    assert times[64] / times[16] < (64 / 16) ** 2
    small = Asked(host(7, full=4), guest(4))
    permuting = _time(partial(_permute, small), rounds=3)
    ours = _time(partial(_fit, small), rounds=40)
    hours = permuting * math.perm(16, 8) / math.perm(7, 4) / 3600
    assert permuting > 20 * ours
    return [
        Figure("8 on 16 of which 7 fit", times[16] * MICRO, "us CPU", "<= 1,000"),
        _fitting("the same with networks, devices", affine, "<= 5,000"),
        Figure("8 on 64 of which 7 fit", times[64] * MICRO, "us CPU"),
        Figure("growth from 16 to 64 host cells", times[64] / times[16], "times", "<= 16"),
        Figure("4 on 7 of which 3 fit: permuting takes", permuting / ours, "times as long"),
        Figure("8 on 16 at that rate: permuting would take", hours, "hours"),
    ]


def _on_the_edge() -> list[Figure]:
    """Return what the hardest seeded cases of networks and devices cost."""
    dice = Random(4)
    figures = []
    for cells in (16, 32):
        cases = [knife_edge(dice, cells, 8) for _ in range(KNIFE_EDGES)]
        times = [_time(partial(_fit, asked), rounds=3) for asked in cases]
        name = f"8 on {cells}, networks and devices on the edge"
        figures.append(Figure(f"{name}: median", median(times) * MICRO, "us CPU"))
        goal = "<= 5,000" if cells == 16 else ""
        figures.append(Figure(f"{name}: worst", max(times) * MICRO, "us CPU", goal))
    return figures


def _seven_left(cells: int) -> Asked:
    return Asked(host(cells, full=cells - 7), guest(8))


def _fitting(name: str, asked: Asked, goal: str) -> Figure:
    return _least(name, lambda: _fit(asked), goal)


def _least(name: str, work: Callable[[], object], goal: str = "") -> Figure:
    return Figure(name, _time(work) * MICRO, "us CPU", goal)


def _fit(asked: Asked) -> Placement | Misfit:
    return fit(asked.host, asked.guest, asked.limits, pci_requests=asked.requests)


def _permute(asked: Asked) -> object:
    return permuting_fit(asked.host, asked.guest, asked.limits, asked.requests)


def _time(work: Callable[[], object], rounds: int = 200, calls: int = 5) -> float:
    """Return the least CPU seconds that one call takes, each round so many calls."""
    least = math.inf
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(calls):
            work()
        least = min(least, time.process_time() - began)
    return least / calls


class _Run(NamedTuple):
    cpu_s: float
    wall_s: float
    peak_mib: float


def _streamed(folder: Path, count: int) -> _Run:
    """Run `conductor fit` on so many cases."""
    cases = folder / f"{count}.jsonl"
    with cases.open("w") as file:
        file.writelines(case_lines(count))
    command = [sys.executable, "-m", "conductor", "fit", "--cases", str(cases)]
    began = time.monotonic()
    peak_kib, status = 0, None
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while status is None:
            peak_kib = max(peak_kib, _peak_kib(process.pid))
            time.sleep(0.02)
            ended, code, usage = os.wait4(process.pid, os.WNOHANG)
            status = code if ended else None
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    wall_s = time.monotonic() - began
    return _Run(usage.ru_utime + usage.ru_stime, wall_s, peak_kib / 1024)


def _peak_kib(pid: int) -> int:
    """Return the most memory a process has held; `ru_maxrss` counts its parent's too."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


EVERYTHING = {
    "hw:cpu_realtime": "yes",
    "hw:cpu_realtime_mask": "^0",
    "hw:cpu_sockets": "2",
    "hw:cpu_thread_policy": "require",
    "hw:emulator_threads_policy": "isolate",
    "hw:ephemeral_encryption": "true",
    "hw:ephemeral_encryption_format": "luks",
    "hw:locked_memory": "true",
    "hw:mem_encryption": "true",
    "hw:mem_page_size": "1GB",
    "hw:pci_numa_affinity_policy": "socket",
    "hw:pmem": "a,b",
    "hw:pmu": "true",
    "hw:serial_port_count": "3",
    "hw:tpm_version": "2.0",
    "hw:vif_multiqueue_enabled": "true",
    "os:secure_boot": "required",
}
