"""The simulation on a real fleet and trace, checked by code that shares nothing with it.

The data is public and not part of the project: it is looked for beside the checkout, in
`../shared/data/huawei_topology_aware`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.scheduling.checker import complaints

CHECKOUT = Path(__file__).parents[2]
DATA = CHECKOUT.parent / "shared" / "data" / "huawei_topology_aware"
HOSTS, REQUESTS, RACKS = (
    DATA / name for name in ("PM_res.csv", "VM_data_C1.csv", "topology_provider.csv")
)
FIRST_FIT_HOSTS = 1_234
BEST_FIT_REJECTED = 100
MOST_MIB = 300

# Of its own memory since exec: `ru_maxrss` would begin with what the forking pytest had.
AND_ITS_PEAK = """
import sys
from pathlib import Path
from conductor.cli import run
code = run(sys.argv[1:])
peak = next(x for x in Path("/proc/self/status").read_text().splitlines() if x[:6] == "VmHWM:")
print(int(peak.split()[1]) // 1024, file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture(autouse=True)
def data_is_there() -> None:
    missing = [str(path) for path in (HOSTS, REQUESTS, RACKS) if not path.is_file()]
    if missing:
        pytest.fail(f"this test reads public data that is not there: {', '.join(missing)}")


def simulated(*options: str | Path) -> tuple[dict[str, Any], int]:
    """Run the command as a person does; return its summary and its peak memory in MiB."""
    command = [sys.executable, "-c", AND_ITS_PEAK, "simulate", "--hosts", HOSTS]
    command += ["--requests", REQUESTS, "-o", "json", *options]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), int(done.stderr.split()[-1])


def test_without_groups_nothing_is_refused_and_fewer_hosts_are_used_than_by_first_fit(
    tmp_path: Path,
) -> None:
    out = tmp_path / "placements.jsonl"
    summary, peak_mib = simulated("--groups", "ignore", "--strategy", "pack", "--placements", out)
    assert complaints(HOSTS, REQUESTS, out) == []
    assert (summary["requests"], summary["rejected"]) == (4_998, 0)
    assert summary["hosts_used"] <= FIRST_FIT_HOSTS * 0.95
    assert peak_mib < MOST_MIB


def test_with_groups_every_rule_holds_and_no_valid_host_is_overlooked(tmp_path: Path) -> None:
    out = tmp_path / "placements.jsonl"
    summary, peak_mib = simulated("--racks", RACKS, "--placements", out)
    assert complaints(HOSTS, REQUESTS, out, RACKS) == []
    assert summary["rejected"] < BEST_FIT_REJECTED
    assert summary["placed"] + summary["rejected"] == summary["requests"] == 4_998
    assert peak_mib < MOST_MIB


def test_spreading_is_as_correct_as_packing(tmp_path: Path) -> None:
    out = tmp_path / "placements.jsonl"
    requests = tmp_path / "requests.csv"
    requests.write_text("".join(REQUESTS.open(encoding="utf-8").readlines()[:1_001]))
    options = ("--requests", requests, "--racks", RACKS, "--strategy", "spread")
    summary, _ = simulated(*options, "--placements", out)
    assert complaints(HOSTS, requests, out, RACKS) == []
    assert summary["requests"] == 1_000
