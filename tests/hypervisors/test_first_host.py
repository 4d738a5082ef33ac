"""`docs/first-host.md` is typed as it stands, on a libvirt and services of the test's own."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.test_documented_commands import blocks
from tests.environment import libvirt_hosts
from tests.environment.variables import CHECKOUT
from tests.limits import limit_s, wait_for

PAGE = CHECKOUT / "docs" / "first-host.md"
INSTALLS = "make install"
"""The first block: `make hypervisor` and `make services` have been run before any test."""
STATE = "/var/lib/vm-conductor"
LIBVIRT = "qemu:///system"
ENDS = "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT"


@pytest.mark.chaos
@pytest.mark.usefixtures("tiny_image")
def test_a_stranger_gets_from_a_bare_machine_to_the_first_guest(
    tmp_path: Path,
    fresh_vhost: Callable[[], str],
    fresh_database: Callable[[], str],
    redis_url: str,
) -> None:
    [daemon] = libvirt_hosts.start(("first",), tmp_path / "daemons")
    own = {
        "CONDUCTOR_BROKER_URL": fresh_vhost(),
        "CONDUCTOR_DATABASE_URL": fresh_database(),
        "CONDUCTOR_RESULT_URL": redis_url,
    }
    try:
        wait_for(daemon.answers, "libvirt", 60.0, poll_s=0.2)
        script = typed(own, {STATE: str(tmp_path / "state"), LIBVIRT: daemon.uri})
        kept = {name: v for name, v in os.environ.items() if not name.startswith("CONDUCTOR_")}
        done = subprocess.run(
            ["bash", "-e"],
            input=script,
            cwd=CHECKOUT,
            env=kept,
            capture_output=True,
            text=True,
            timeout=limit_s(300),
            check=False,
        )
    finally:
        libvirt_hosts.stop([daemon])
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"^(READY|TICK \d+)$", done.stdout, re.MULTILINE)
    assert not list((tmp_path / "state").rglob("guests/*"))


def typed(settings: dict[str, str], replaced: dict[str, str]) -> str:
    """Return what the page says to type, with the settings and places of this test."""
    said = [block for block in blocks(PAGE) if INSTALLS not in block]
    assert len(said) == 6
    text = "\n".join([ENDS, *said])
    for name, value in settings.items():
        text, count = re.subn(
            rf"^export {name}=.*$", f"export {name}='{value}'", text, flags=re.MULTILINE
        )
        assert count == 1
    for before, after in replaced.items():
        assert before in text
        text = text.replace(before, after)
    return text
