"""Starting our processes with stand-ins behind them, and reading what these were told."""

from __future__ import annotations

import json
import queue
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from tests.environment.warm_processes import WarmProcess
from tests.limits import Limit

START_S = 30.0
PATIENCE_S = 20.0


class Process:
    """One process of `tests.services.stand_ins`; its lines on stdout are JSON, but for `ready`."""

    def __init__(
        self, role: str, broker_url: str, *arguments: str, errors: Path | None = None
    ) -> None:
        with errors.open("wb") if errors else nullcontext() as stderr:
            self._process = WarmProcess(
                "tests.services.stand_ins", [role, broker_url, *arguments], stderr=stderr
            )
        self._lines: queue.Queue[str] = queue.Queue()
        self._seen: list[dict[str, Any]] = []
        self.printed: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def wait_ready(self) -> None:
        """Return when the process says that it consumes."""
        limit = Limit(START_S)
        while "ready" not in self.printed:
            assert self.alive, "the process ended before it was ready"
            assert not limit.over, "the process is not ready"
            time.sleep(0.01)

    def wait_until_it_hears(self, number: int) -> None:
        """Return when the process handles this signal: before, it would simply die of it."""
        deadline = time.monotonic() + START_S
        status = Path(f"/proc/{self._process.pid}/status")
        while not int(status.read_text().split("SigCgt:")[1].split()[0], 16) >> (number - 1) & 1:
            assert time.monotonic() < deadline, f"the process never handles signal {number}"
            time.sleep(0.01)

    def resident_mib(self) -> int:
        """Return how much memory the process holds."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) // 1024

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def expect(self, **wanted: Any) -> dict[str, Any]:
        """Return the first thing told whose fields are these, among past ones too."""
        return self.expect_many(1, **wanted)[0]

    def expect_many(self, count: int, **wanted: Any) -> list[dict[str, Any]]:
        """Return what was told with these fields, once there are at least `count`."""
        limit = Limit(PATIENCE_S)
        while len(found := self.told(**wanted)) < count:
            assert self.alive, "the process ended"
            assert not limit.over, f"not told {count} of {wanted} in {self._seen[-20:]}"
            time.sleep(0.01)
        return found

    def told(self, **wanted: Any) -> list[dict[str, Any]]:
        """Return everything told so far whose fields are these."""
        while not self._lines.empty():
            self._seen.append(json.loads(self._lines.get()))
        return [
            told
            for told in self._seen
            if all(told.get(name) == value for name, value in wanted.items())
        ]

    def drain(self, patience_s: float = PATIENCE_S) -> int:
        """Ask the process to end, as an operator does; return its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(patience_s)

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        """Return the exit code of a process that ends by itself."""
        return self._process.wait(patience_s)

    def kill(self) -> None:
        """SIGKILL: no word, no acknowledgement, no clean end of the connection."""
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.printed.append(line.strip())
            if line.startswith("{"):
                self._lines.put(line)


@contextmanager
def running(role: str, broker_url: str, *arguments: str) -> Iterator[Process]:
    """Yield a process that consumes, and end it afterwards."""
    process = Process(role, broker_url, *arguments)
    try:
        process.wait_ready()
        yield process
    finally:
        process.kill()


def build_body(name: str, **more: Any) -> dict[str, Any]:
    """Return the arguments of a build; the stand-in does what the instance's name says."""
    instance: Mapping[str, Any] = {"name": name, "flavor": "small", "image": "debian"}
    return {"context": {"project_id": "p1"}, "instance": instance, **more}
