"""The system as processes on this machine: one conductor, one scheduler, some compute workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.operations.world import small_host


@contextmanager
def running(environ: dict[str, str], directory: Path, hosts: int) -> Iterator[None]:
    """Run them until the block ends; `hosts` compute workers, `host-0` and on, all ready."""
    topology = directory / "host.json"
    topology.write_text(json.dumps(small_host(cells=2, cpus=32, memory_mib=65_536)))
    roles = [["conductor"], ["scheduler"]]
    for number in range(hosts):
        state = directory / f"host-{number}"
        where = ["--topology", str(topology), "--state-dir", str(state)]
        roles.append(["compute", "--host", f"host-{number}", *where])
    processes = [_serve(role, environ, directory) for role in roles]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(timeout=60)


def _serve(role: list[str], environ: dict[str, str], directory: Path) -> subprocess.Popen[str]:
    errors = (directory / f"{'-'.join(role[:3])}.log").open("w")
    return subprocess.Popen(
        [sys.executable, "-m", "conductor", "serve", *role],
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )
