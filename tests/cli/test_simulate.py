"""`simulate` as a person runs it; what it places is tested with the scheduler."""

import json
from pathlib import Path

import pytest

from tests.cli.running import Cli, one_line

HOSTS = "CPU1,RAM1,CPU2,RAM2\n8,16,8,16\n4,8,4,8\n"
REQUESTS = "flavor_vcpus,flavor_ram,numa\n8,8,1\n8,8,2\n64,8,1\n"


@pytest.fixture
def files(tmp_path: Path) -> tuple[object, ...]:
    (tmp_path / "hosts.csv").write_text(HOSTS)
    (tmp_path / "requests.csv").write_text(REQUESTS)
    return ("--hosts", tmp_path / "hosts.csv", "--requests", tmp_path / "requests.csv")


def test_the_summary_has_what_the_contract_names(cli: Cli, files: tuple[object, ...]) -> None:
    result = cli("simulate", *files, "-o", "json")
    assert result.code == 0, result.err
    summary = result.json
    assert (summary["requests"], summary["placed"], summary["rejected"]) == (3, 2, 1)
    assert {"hosts_used", "seconds", "decisions_per_s", "p50_ms", "p99_ms"} <= set(summary)
    assert sum(summary["rejected_by_reason"].values()) == 1


def test_a_placements_line_a_request(cli: Cli, files: tuple[object, ...], tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert cli("simulate", *files, "--placements", out, "--limit", 2).code == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["request"] for line in lines] == [0, 1]
    assert lines[0]["host"].startswith("host-")


@pytest.mark.parametrize(
    ("replaced", "named"),
    [
        ("/nowhere.csv", "nowhere"),
        ("", "hosts"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_in_one_line(
    cli: Cli, files: tuple[object, ...], replaced: str, named: str
) -> None:
    result = cli("simulate", "--hosts", replaced, *files[2:])
    assert result.code == 2
    assert named in result.err
    assert one_line(result.err)


def test_a_wrong_value_is_named_in_one_line(cli: Cli, files: tuple[object, ...]) -> None:
    result = cli("simulate", *files, "--strategy", "odd")
    assert result.code == 2
    assert "--strategy is odd" in result.err
    assert one_line(result.err)
