"""`simulate` on a real fleet and trace: decisions a second, p50, p99, peak memory; a large fleet.

One process a run, so that each peak is its own.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.benchmarks.report import Figure, report
from tests.scheduling.test_simulation_data import AND_ITS_PEAK, CHECKOUT, HOSTS, RACKS, REQUESTS

LARGE, SMALL = 10_000, 1_000
LARGE_REQUESTS = 1_500


def test_simulate_the_trace() -> None:
    figures = []
    for groups in ("ignore", "honour"):
        for strategy in ("pack", "spread"):
            options = ("--racks", RACKS, "--groups", groups, "--strategy", strategy)
            summary, peak_mib = _simulated(HOSTS, REQUESTS, *options)
            figures += _figures(f"{groups} {strategy}", summary, peak_mib)
    report("simulate", figures)


def test_simulate_a_fleet_of_ten_thousand(tmp_path: Path) -> None:
    figures = []
    for strategy in ("pack", "spread"):
        p50_ms = {}
        for hosts in (SMALL, LARGE):
            fleet, requests = _half_full(tmp_path, hosts)
            summary, peak_mib = _simulated(fleet, requests, "--strategy", strategy)
            p50_ms[hosts] = summary["p50_ms"]
            figures += _figures(f"{hosts:,} hosts {strategy}", summary, peak_mib)
        ratio = p50_ms[LARGE] / p50_ms[SMALL]
        figures.append(Figure(f"{strategy}: p50 of 10,000 / 1,000 hosts", ratio, "", "<= 2"))
    report("simulate_large", figures)


def _figures(name: str, summary: dict[str, Any], peak_mib: int) -> list[Figure]:
    return [
        Figure(f"{name}: decisions", summary["decisions_per_s"], "1/s"),
        Figure(f"{name}: p50", summary["p50_ms"], "ms"),
        Figure(f"{name}: p99", summary["p99_ms"], "ms"),
        Figure(f"{name}: rejected", summary["rejected"], ""),
        Figure(f"{name}: hosts used", summary["hosts_used"], ""),
        Figure(f"{name}: peak memory", peak_mib, "MiB", "< 300"),
    ]


def _half_full(folder: Path, hosts: int) -> tuple[Path, Path]:
    """Write a fleet whose hosts have lost a random part of two cells of 64 CPUs and 256 GiB."""
    chance = random.Random(hosts)
    fleet, requests = folder / "hosts.csv", folder / "requests.csv"
    rows = [",".join(str(chance.randint(0, most)) for most in (64, 256) * 2) for _ in range(hosts)]
    fleet.write_text("\n".join(["CPU1,RAM1,CPU2,RAM2", *rows]) + "\n")
    sizes = ("2,4,1", "4,16,1", "8,16,1", "16,64,1", "32,64,2", "64,128,2")
    asked = [chance.choice(sizes) for _ in range(LARGE_REQUESTS)]
    requests.write_text("\n".join(["flavor_vcpus,flavor_ram,numa", *asked]) + "\n")
    return fleet, requests


def _simulated(hosts: Path, requests: Path, *options: str | Path) -> tuple[dict[str, Any], int]:
    command = [sys.executable, "-c", AND_ITS_PEAK, "simulate", "-o", "json", *options]
    command += ["--hosts", hosts, "--requests", requests]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout), int(done.stderr.split()[-1])
