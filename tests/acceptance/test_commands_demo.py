"""`conductor demo` and `conductor up` as a stranger runs them."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.environment.variables import CHECKOUT
from tests.limits import Limit, limit_s

COMMAND = [sys.executable, "-m", "conductor"]


def environment(state_dir: Path) -> dict[str, str]:
    """Return the environment without any setting of ours but the state directory."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CONDUCTOR_")}
    return {**kept, "CONDUCTOR_STATE_DIR": str(state_dir), "NO_COLOR": "1", "COLUMNS": "80"}


def run(state_dir: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=CHECKOUT,
        env=environment(state_dir),
        capture_output=True,
        text=True,
        timeout=limit_s(110),
        check=False,
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The demo's state directory, and what it printed."""
    state_dir = tmp_path_factory.mktemp("demo")
    done = run(state_dir, "demo", "--svg", str(state_dir / "demo.svg"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return state_dir, done.stdout


def test_the_demo_builds_most_of_what_is_asked_and_adds_up(demo: tuple[Path, str]) -> None:
    _, out = demo
    totals = re.search(r"totals +(\d+) active .* (\d+) not placed", out)
    assert totals is not None
    assert int(totals[1]) > 300
    assert int(totals[2]) > 5
    assert "every pin, page and allocation adds up" in out


def test_the_demo_crashes_a_worker_and_starts_it_again(demo: tuple[Path, str]) -> None:
    _, out = demo
    crashed = re.search(r"✗ (\S+): compute worker crashed", out)
    assert crashed is not None
    assert f"● {crashed[1]}: restarted" in out


def test_the_demo_explains_a_refusal_in_one_line(demo: tuple[Path, str]) -> None:
    _, out = demo
    assert re.search(r"^ *\d+ monster +14 hosts: .*need 40", out, re.MULTILINE)


def test_the_demo_draws_hosts_with_letters_and_no_escape_codes(demo: tuple[Path, str]) -> None:
    state_dir, out = demo
    assert "╭─ NUMA cell 3 · socket 1" in out
    assert "\x1b" not in out
    assert (state_dir / "demo.svg").read_text().startswith("<svg")


def test_every_command_that_the_demo_prints_works(demo: tuple[Path, str]) -> None:
    _, out = demo
    printed = out[out.index("try next") :].splitlines()
    where = next(line for line in printed if "CONDUCTOR_STATE_DIR" in line).partition("=")[2]
    commands = [shlex.split(line)[3:] for line in printed if " conductor " in line]
    assert len(commands) >= 5
    for command in commands:
        if command[0] == "up":
            assert Path(command[-1]).exists()
        else:
            done = run(Path(where), *command)
            assert done.returncode == 0, (command, done.stderr)
            assert done.stdout


@pytest.fixture
def up(demo: tuple[Path, str]) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """The demo's system, up again with its hosts and guests."""
    where = demo[0] / ".demo"
    process = subprocess.Popen(
        [*COMMAND, "up", "--host", str(where / "fleet.json")],
        cwd=CHECKOUT,
        env=environment(where),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield where, process
    finally:
        process.terminate()
        process.wait(timeout=limit_s(30))
        process.stdout.close()


def test_the_demos_fleet_lives_on_under_up(
    up: tuple[Path, subprocess.Popen[str]],
) -> None:
    where, process = up
    limit = Limit(20)
    while run(where, "health").returncode != 0 and not limit.over:
        time.sleep(0.5)
    name = json.loads(run(where, "instances", "list", "--state", "active").stdout)[0]["name"]
    assert run(where, "delete", name, "--wait").returncode == 0
    again = run(where.parent, "demo")
    assert again.returncode == 2
    assert "stop it before the next demo" in again.stderr
    built = run(where, "build", "--flavor", "web", "--image", "debian-13", "--wait")
    assert built.returncode == 0, built.stderr
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=limit_s(30)) == 0
    refused = run(where, "build", "--flavor", "web", "--image", "debian-13")
    assert refused.returncode == 4
    assert "conductor up" in refused.stderr
