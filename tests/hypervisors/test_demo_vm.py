"""`make demo-vm`, as somebody watches it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.environment.variables import CHECKOUT
from tests.limits import limit_s


@pytest.mark.chaos
@pytest.mark.usefixtures("tiny_image", "broker_url", "database_url", "redis_url")
def test_the_demo_shows_pins_a_counter_that_goes_on_and_a_disk_that_comes_back() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "tests.hypervisors.demo_vm"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=limit_s(300),
        check=False,
    )
    assert shown.returncode == 0, shown.stderr[-3000:]
    assert "libvirt says of `db`: vCPU 0 on CPU 1\n" in shown.stdout
    counted = re.search(r"counter goes on: (\d+) on \w+ before the move, (\d+) first", shown.stdout)
    assert counted is not None, shown.stdout
    assert 1 <= int(counted[1]) < int(counted[2])
    assert "its disk still has the mark: demo\n" in shown.stdout
    assert shown.stdout.splitlines()[-2].startswith("on real hosts: ")
