"""`guest`, `host-config` and `cpuset` as typed."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from conductor.cli import run

FLAVOR = {"vcpus": 2, "memory_mb": 512}


def test_guest_and_host_config_answer_each_line_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = tmp_path / "cases"
    cases.write_bytes(json.dumps({"id": "a", "flavor": FLAVOR}).encode() + b"\n\n\xff\n")
    assert run(["guest", "--cases", str(cases)]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["guest"]["serial_ports"] == 1
    assert second["error"]["line"] == 3
    cases.write_text('{"id": "b", "shared": "0-1", "dedicated": "1"}')
    assert run(["host-config", "--cases", str(cases)]) == 0
    assert json.loads(capsys.readouterr().out)["rejected"]["code"] == "cpu_in_both_sets"


def test_cases_come_from_stdin_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = json.dumps({"id": "a", "flavor": FLAVOR}).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert run(["guest", "--cases", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == "a"


@pytest.mark.parametrize("command", ["guest", "host-config", "fit"])
def test_a_file_that_cannot_be_read_is_named_in_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "--cases", str(tmp_path)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: cases is ")
    assert told.err.count("\n") == 1


def test_cpuset_parse_prints_an_array_for_each_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cpuset", "parse", "4-12,^8,15", "2-10,^5,14", "^1"]) == 0
    first, second, third = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == [4, 5, 6, 7, 9, 10, 11, 12, 15]
    assert second == [2, 3, 4, 6, 7, 8, 9, 10, 14]
    assert third == []
    assert run(["cpuset", "parse", "1-2", "-o", "table"]) == 0
    assert "1, 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["7", "1", "2", "3"], "1-3,7"),
        (["--no-ranges", "3,1", "2"], "1,2,3"),
        (["1-4", "^3"], "1-2,4"),
        (["5", "-o", "json"], '"5"'),
    ],
)
def test_cpuset_format_prints_one_bare_list(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cpuset", "format", *words]) == 0
    assert capsys.readouterr().out == text + "\n"


@pytest.mark.parametrize("words", [["parse", "4-1"], ["format", "one"], ["parse"], []])
def test_a_wrong_list_ends_with_2_and_one_line(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cpuset", *words]) == 2
    assert "Traceback" not in capsys.readouterr().err
