"""The Placement server of tests: there when it is asked for, gone with whoever asked."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from tests.environment import placement
from tests.environment.placement import PlacementServer
from tests.limits import Limit, limit_s

STARTS_ONE = """
import time
from tests.environment import placement
with placement.server() as server:
    print(server.url, flush=True)
    time.sleep(600)
"""
GONE_WITHIN_S = 20.0


def test_the_published_server_answers_with_its_versions(placement_server: PlacementServer) -> None:
    with urllib.request.urlopen(placement_server.url) as response:
        assert b'"max_version": "1.39"' in response.read()


def test_a_server_ends_with_the_run_that_started_it_however_that_ends(tmp_path: Path) -> None:
    placement.installed()
    run = subprocess.Popen(
        [sys.executable, "-c", STARTS_ONE],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert run.stdout is not None
    address = urlsplit(run.stdout.readline().strip())
    assert _answers(address.port)
    run.kill()
    run.communicate()
    limit = Limit(GONE_WITHIN_S)
    while _answers(address.port):
        assert not limit.over, "the server outlived its run"
        time.sleep(0.05)


def _answers(port: int | None) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port or 0), timeout=limit_s(1)).close()
    except OSError:
        return False
    return True
