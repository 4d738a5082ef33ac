"""Servers of a test's own, which it may kill and start again without harming anybody."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.acceptance.fleet import Services
from tests.environment import private, probes, variables
from tests.environment.private import Server
from tests.environment.probes import Answers, Verdict
from tests.limits import Limit, limit_s

ANSWER_S = 90.0


class PrivateServices:
    """A broker, a database and a Redis: each dies without a word and comes back."""

    def __init__(self, directory: Path, servers: dict[str, Server]) -> None:
        self._directory = directory
        self._servers = servers
        self.services = Services(
            self._value("RabbitMQ", variables.BROKER_URL),
            self._value("PostgreSQL", variables.DATABASE_URL),
            self._value("Redis", variables.RESULT_URL),
        )
        self.broker_control = self._value("RabbitMQ", variables.BROKER_CONTROL)

    def crash_broker(self) -> None:
        """SIGKILL the node, and start it on what it has on disk."""
        home = self._directory / "rabbitmq"
        os.kill(int((home / "pid").read_text()), signal.SIGKILL)
        time.sleep(0.5)
        _run(str(home / "run"), "rabbitmq-server", "-detached")
        _wait(probes.rabbitmq, self.services.broker_url)

    def crash_database(self) -> None:
        """Let the server stop as in a crash, and recover from its log."""
        *control, _, _, _ = self._servers["PostgreSQL"].stop
        _run(*control, "-m", "immediate", "-w", "-l", "/dev/null", "restart")
        _wait(probes.postgresql, self.services.database_url)

    def crash_redis(self) -> None:
        """Lose the server with all it holds, and start an empty one."""
        server = self._servers["Redis"]
        private.stop(server.stop)
        home = self._directory / "redis"
        _run(
            *("redis-server", "--daemonize", "yes", "--bind", "127.0.0.1"),
            *("--port", str(server.port), "--dir", str(home), "--save", ""),
            *("--logfile", str(home / "log")),
        )
        _wait(probes.redis, self.services.result_url)

    @contextmanager
    def blocked_broker(self) -> Iterator[None]:
        """Let the broker take nothing from publishers, as when its memory is at its limit."""
        self._control("set_vm_memory_high_watermark", "absolute", "1MB")
        try:
            yield
        finally:
            self._control("set_vm_memory_high_watermark", "0.4")

    def _control(self, *words: str) -> None:
        _run(*shlex.split(self.broker_control), "-q", *words)

    def _value(self, server: str, variable: str) -> str:
        return self._servers[server].values[variable]


@contextmanager
def private_services() -> Iterator[PrivateServices]:
    """Start one server of each kind in a folder of their own, and stop them afterwards."""
    with tempfile.TemporaryDirectory(prefix="conductor-chaos-") as name:
        directory = Path(name)
        directory.chmod(0o755)  # PostgreSQL runs under an account of its own
        servers: dict[str, Server] = {}
        try:
            with ThreadPoolExecutor() as pool:
                begun = {k: pool.submit(start, directory) for k, start in private.STARTERS.items()}
            for kind, future in begun.items():
                servers[kind] = future.result()
            yield PrivateServices(directory, servers)
        finally:
            for server in servers.values():
                private.stop(server.stop)


def _run(*command: str) -> None:
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            timeout=limit_s(120), cwd="/",
        )  # fmt: skip
        output.seek(0)
        assert done.returncode == 0, f"{shlex.join(command)}: {output.read()[-500:]}"


def _wait(probe: Callable[[str], Verdict], url: str) -> None:
    limit = Limit(ANSWER_S)
    while not isinstance(probe(url), Answers):
        assert not limit.over, f"{url} does not answer"
        time.sleep(0.1)
