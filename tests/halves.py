"""Run every test in two processes side by side: what waits for processes, and what computes.

The tests of whole systems wait most of the time, all others compute: together they take little
longer than the slower half. Each half has services of its own (`tests.environment.isolation`).
What the second half printed is shown when both have ended. Options are passed on to both.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
WAITING = ("tests/acceptance", "tests/services")


def main(options: Sequence[str]) -> int:
    """Run both halves to their ends; return the worse exit code."""
    rest = [f"--ignore={operation}" for operation in WAITING]
    with tempfile.TemporaryFile("w+") as said:
        computing = subprocess.Popen(
            _pytest("tests", *rest, *options), cwd=ROOT, stdout=said, stderr=subprocess.STDOUT
        )
        try:
            waiting = subprocess.run(_pytest(*WAITING, *options), cwd=ROOT, check=False)
            codes = (waiting.returncode, computing.wait())
        finally:
            computing.terminate()
        said.seek(0)
        print(said.read())
    return max(codes)


def _pytest(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pytest", *arguments]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
