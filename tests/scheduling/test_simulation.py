"""Traces: what is read, what is refused by line and field, what the answers look like."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from conductor.cli.cases.simulate_trace import Strategy, Watch, run
from conductor.scheduling.analysis.fleet_simulation import Simulation
from conductor.scheduling.analysis.request_trace import (
    TraceHost,
    TraceRequest,
    read_hosts,
    read_racks,
    read_requests,
)
from models.errors import Rejected
from tests.scheduling.checker import complaints

GIB = 1024
TWO_CELLS = ((8, 16 * GIB), (8, 16 * GIB))


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_hosts_are_named_by_their_place_and_know_their_rack(tmp_path: Path) -> None:
    hosts = write(tmp_path / "hosts.csv", "CPU1,RAM1,CPU2,RAM2", "8,16,4,0.5", "1,2,0,0")
    racks = write(tmp_path / "racks.csv", "host_id,rack_id", "host-0,7", "host-9,8")
    assert read_hosts(hosts, read_racks(racks)) == [
        TraceHost("host-0", ((8, 16 * GIB), (4, 512)), "7"),
        TraceHost("host-1", ((1, 2 * GIB), (0, 0)), None),
    ]


def test_requests_keep_their_group_rule(tmp_path: Path) -> None:
    header = "flavor_vcpus,flavor_ram,numa,strategy,group,domain"
    requests = write(tmp_path / "r.csv", header, "2,4,1,,,", "4,8,2,fault_domain,3,1")
    assert read_requests(requests) == [
        TraceRequest(2, 4 * GIB, 1),
        TraceRequest(4, 8 * GIB, 2, "fault_domain", "3", "1"),
    ]


def test_columns_for_groups_may_be_absent(tmp_path: Path) -> None:
    requests = write(tmp_path / "r.csv", "flavor_vcpus,flavor_ram,numa", "2,4,1")
    assert read_requests(requests) == [TraceRequest(2, 4 * GIB, 1)]


@pytest.mark.parametrize(
    ("line", "field", "rule"),
    [
        ("x,4,1,,,", "flavor_vcpus", "should be a whole number of at least 1"),
        ("0,4,1,,,", "flavor_vcpus", "should be a whole number of at least 1"),
        ("2,-1,1,,,", "flavor_ram", "should be GiB"),
        ("2,NaN,1,,,", "flavor_ram", "should be GiB"),
        ("2,1e400,1,,,", "flavor_ram", "should be GiB"),
        ("2,0.0001,1,,,", "flavor_ram", "should be GiB"),
        ("2,4,,,,", "numa", "is missing"),
        ("2,4", "numa", "is missing"),
        ("2,4,1,sometimes,1,", "strategy", "should be one of affinity"),
        ("2,4,1,affinity,,", "group", "is missing"),
        ("2,4,1,fault_domain,1,", "domain", "is missing"),
        ("9" * 5000 + ",4,1,,,", "flavor_vcpus", "should be a whole number"),
    ],
)
def test_a_bad_line_is_named_with_file_line_field_and_rule(
    tmp_path: Path, line: str, field: str, rule: str
) -> None:
    header = "flavor_vcpus,flavor_ram,numa,strategy,group,domain"
    path = write(tmp_path / "requests.csv", header, "2,4,1,,,", line)
    with pytest.raises(Rejected) as refused:
        read_requests(path)
    assert refused.value.key == field
    assert refused.value.message.startswith(f"{path}, line 3: {field} is ")
    assert rule in refused.value.message


def test_a_missing_column_and_a_missing_file_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "hosts.csv", "CPU1,RAM1,CPU2", "1,2,3")
    with pytest.raises(Rejected, match="line 1: column RAM2 is missing"):
        read_hosts(path, {})
    with pytest.raises(Rejected, match=r"none\.csv: No such file"):
        read_hosts(tmp_path / "none.csv", {})
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"CPU1,RAM1,CPU2,RAM2\n\xff\xfe,1,1,1\n")
    with pytest.raises(Rejected, match="is no CSV text"):
        read_hosts(binary, {})


def test_a_host_in_two_racks_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "racks.csv", "host_id,rack_id", "host-0,1", "host-0,2")
    with pytest.raises(Rejected, match="line 3: host_id is 'host-0': a host is in one rack"):
        read_racks(path)


def test_a_guest_of_two_numa_cells_takes_half_of_each() -> None:
    simulation = Simulation([TraceHost("host-0", TWO_CELLS)], "pack")
    placed = simulation.place(TraceRequest(8, 8 * GIB, 2))
    assert (placed.host, placed.cells) == ("host-0", (0, 1))
    assert simulation.place(TraceRequest(8, 8 * GIB, 2)).host == "host-0"
    refused = simulation.place(TraceRequest(2, GIB, 1))
    assert refused.host is None
    assert refused.reason == "1 host: 1 lacks free dedicated CPUs (need 2, best 0 on host-0)"


def test_a_request_that_cannot_be_split_evenly_is_refused_and_the_run_goes_on() -> None:
    simulation = Simulation([TraceHost("host-0", TWO_CELLS)], "pack")
    answers = list(simulation.run([TraceRequest(3, GIB, 2), TraceRequest(2, GIB, 1)]))
    assert answers[0].host is None
    assert answers[0].reason
    assert answers[1].host == "host-0"


def test_a_group_without_room_in_its_rack_is_refused_though_others_have_room() -> None:
    hosts = [TraceHost(f"host-{n}", TWO_CELLS, rack=str(n)) for n in range(2)]
    member = TraceRequest(8, GIB, 1, "affinity", "0")
    answers = list(Simulation(hosts, "spread").run([member] * 3))
    assert answers[0].host == answers[1].host is not None
    assert answers[2].host is None
    assert answers[2].code == "affinity"


def test_a_run_writes_a_line_a_request_and_sums_up(tmp_path: Path) -> None:
    hosts = [TraceHost("host-0", TWO_CELLS)]
    requests = [TraceRequest(8, GIB, 1)] * 3
    out = io.StringIO()
    summary = run(hosts, requests, Strategy.PACK, Watch(), out).to_json()
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["host"] for line in lines] == ["host-0", "host-0", None]
    assert lines[0] == {"request": 0, "host": "host-0", "cells": [0]}
    assert lines[2]["cells"] == []
    assert (summary["requests"], summary["placed"], summary["rejected"]) == (3, 2, 1)
    assert summary["hosts_used"] == 1
    assert summary["rejected_by_reason"] == {"no_room_pcpu": 1}
    assert summary["p50_ms"] <= summary["p99_ms"]


def test_no_request_at_all_is_a_summary_of_zeros() -> None:
    summary = run([TraceHost("host-0", TWO_CELLS)], [], Strategy.PACK, Watch())
    assert (summary.requests, summary.hosts_used, summary.p99_ms) == (0, 0, 0.0)


HEADER = "flavor_vcpus,flavor_ram,numa,strategy,group,domain"


@pytest.mark.parametrize(
    ("requests", "hosts", "complaint"),
    [
        (["9,1,1,,,"], ["host-0"], "over-committed"),
        (["2,1,2,,,"], ["host-0"], "2 NUMA cells asked for"),
        (["2,1,1,affinity,0,"] * 2, ["host-0", "host-1"], "breaks its affinity rule"),
        (["2,1,1,anti-affinity,0,"] * 2, ["host-0", "host-0"], "breaks its anti-affinity rule"),
        (["2,1,1,fault_domain,0,1", "2,1,1,fault_domain,0,2"], ["host-0"] * 2, "fault_domain"),
        (["2,1,1,,,"], [None], "though host-0 was valid"),
        (["2,1,1,,,"], ["host-7"], "there is no host-7"),
        (["2,1,1,,,"], [], "0 lines answer 1 requests"),
    ],
)
def test_the_checker_finds_what_is_wrong(
    tmp_path: Path, requests: list[str], hosts: list[str | None], complaint: str
) -> None:
    fleet = write(tmp_path / "h.csv", "CPU1,RAM1,CPU2,RAM2", "8,16,8,16", "8,16,8,16")
    racks = write(tmp_path / "k.csv", "host_id,rack_id", "host-0,0", "host-1,1")
    asked = write(tmp_path / "r.csv", HEADER, *requests)
    lines = [
        json.dumps({"request": n, "host": name, "cells": [0] if name else [], "reason": "full"})
        for n, name in enumerate(hosts)
    ]
    out = tmp_path / "p.jsonl"
    out.write_text("".join(line + "\n" for line in lines))
    assert any(complaint in item for item in complaints(fleet, asked, out, racks))
