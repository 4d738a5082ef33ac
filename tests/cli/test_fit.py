"""`fit` as a person runs it."""

import json
import subprocess
import sys
from pathlib import Path

from tests.cli.running import Cli, one_line
from tests.limits import limit_s

CASE = {
    "id": "one",
    "host": {
        "cells": [
            {
                "id": 0,
                "socket": 0,
                "cpuset": [0, 1],
                "pcpuset": [2, 3],
                "memory": 4096,
                "siblings": [[0, 2], [1, 3]],
                "mempages": [[4, 1048576, 0, 0]],
                "cpu_usage": 0,
                "memory_usage": 0,
                "pinned_cpus": [],
            }
        ]
    },
    "flavor": {
        "name": "f",
        "vcpus": 2,
        "memory_mb": 1024,
        "extra_specs": {"hw:cpu_policy": "dedicated"},
    },
    "image": {"properties": {}},
    "limits": None,
    "pack": False,
}


def test_the_contracts_own_case_gets_the_contracts_own_answer(cli: Cli, tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_text(json.dumps(CASE) + "\n")
    result = cli("fit", "--cases", cases)
    answer = result.lines[0]
    assert result.code == 0
    assert answer["placement"]["cells"][0]["cpu_pinning"] == {"0": 2, "1": 3}
    assert answer["host_after"]["cells"][0]["mempages"] == [[4, 1048576, 262144, 0]]


def test_a_malformed_line_is_answered_and_the_others_too(cli: Cli, tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    lines = [json.dumps(CASE).encode(), b"{not json", b"\xff\xfe", b'{"id": "x"}', b"[]"]
    cases.write_bytes(b"\n".join([*lines, json.dumps({**CASE, "id": "last"}).encode()]) + b"\n")
    result = cli("fit", "--cases", cases)
    assert result.code == 0
    assert [answer["id"] for answer in result.lines] == ["one", None, None, "x", None, "last"]
    assert [answer["error"]["line"] for answer in result.lines[1:-1]] == [2, 3, 4, 5]


def test_standard_input_is_read_as_it_comes_and_answered_line_by_line() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "conductor", "fit", "--cases", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for number in range(3):
        process.stdin.write(json.dumps({**CASE, "id": str(number)}).encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == str(number)
    process.stdin.close()
    assert process.wait(timeout=limit_s(20)) == 0
    process.stdout.close()


def test_an_empty_file_has_no_answers(cli: Cli, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    result = cli("fit", "--cases", empty)
    assert (result.code, result.out) == (0, "")


def test_a_file_that_is_not_there_is_named_in_one_line(cli: Cli, tmp_path: Path) -> None:
    result = cli("fit", "--cases", tmp_path / "nowhere")
    assert result.code == 2
    assert "nowhere" in result.err
    assert one_line(result.err)


def test_a_directory_is_no_file_of_cases(cli: Cli, tmp_path: Path) -> None:
    result = cli("fit", "--cases", tmp_path)
    assert result.code == 2
    assert one_line(result.err)


def test_fit_loads_neither_the_database_nor_the_broker() -> None:
    """Answering one case takes a moment, not the start of a whole system."""
    program = (
        "import sys; from conductor.cli import run; code = run(['fit', '--cases', '-']);"
        "loaded = {'sqlalchemy', 'celery', 'kombu', 'redis'} & set(sys.modules);"
        "print(sorted(loaded), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input="", capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"
