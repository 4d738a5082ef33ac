"""One process of ours, in any number of lives: started, stopped, killed, drained."""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from tests.environment.warm_processes import WarmProcess
from tests.limits import Limit

START_S = 60.0
"""Generous: a busy machine with two cores may be starting eight of them at once."""

DRAIN_S = 40.0


class Member:
    """`python -m conductor serve …` under a name that PostgreSQL shows as its application."""

    def __init__(
        self, name: str, arguments: tuple[str, ...], environment: Mapping[str, str], log: Path
    ) -> None:
        self.name = name
        self.arguments = arguments
        self.log = log
        self._environment = {**environment, "PGAPPNAME": name}
        self._process: WarmProcess | None = None
        self._ready = threading.Event()
        self.lives = 0
        self.changed = False

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *more: str) -> None:
        """Begin a life and return at once; `more` are arguments of this life only."""
        assert not self.alive, f"{self.name} runs already"
        self.lives += 1
        self.changed = bool(more)
        self._ready = threading.Event()
        with self.log.open("a") as log:
            log.write(f"--- life {self.lives} of {self.name} {' '.join(more)}\n")
            log.flush()
            self._process = WarmProcess(
                "conductor",
                ["serve", *self.arguments, *more],
                stderr=log,
                environment=self._environment,
            )
        reader = threading.Thread(
            target=self._read, args=(self._process.stdout, self._ready), daemon=True
        )
        reader.start()

    def wait_ready(self) -> None:
        """Return when the process says that it consumes."""
        limit = Limit(START_S)
        while not self._ready.wait(0.02):
            assert self.alive, f"{self.name} ended before it was ready:\n{self.tail()}"
            assert not limit.over, f"{self.name} is not ready:\n{self.tail()}"

    def kill(self) -> None:
        """SIGKILL: no word, no acknowledgement, no clean end of a connection."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def freeze(self) -> None:
        """Let it not run a single instruction more; its connections stay open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on as if nothing had happened."""
        self._signal(signal.SIGCONT)

    def ask_to_end(self) -> None:
        """SIGTERM, as an operator or a supervisor sends it."""
        self._signal(signal.SIGTERM)

    def wait_end(self) -> int:
        """Return the exit code of a process that was asked to end."""
        assert self._process is not None
        return self._process.wait(DRAIN_S)

    def tail(self, lines: int = 25) -> str:
        """Return the end of its log."""
        text = self.log.read_text() if self.log.exists() else ""
        return "\n".join(line[:400] for line in text.splitlines()[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    @staticmethod
    def _read(lines: IO[str], ready: threading.Event) -> None:
        for line in lines:
            if line.strip() == "ready":
                ready.set()
