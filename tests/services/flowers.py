"""Running `conductor flower` as an operator does, and asking it over HTTP."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.environment.private import free_port
from tests.environment.variables import CHECKOUT
from tests.limits import Limit, limit_s

BROKER = "CONDUCTOR_BROKER_URL"
PASSWORD = "a secret, with a comma"
START_S = 30.0
_PATIENCE_S = 15.0


@dataclass(frozen=True)
class Flower:
    """Where a running Flower answers, what it said, and which process it is."""

    url: str
    log: Path
    pid: int

    @property
    def url_with_login(self) -> str:
        """The address as a browser takes it that shall not ask."""
        return self.url.replace("//", f"//operator:{urllib.parse.quote(PASSWORD)}@")

    def tasks(self) -> dict[str, dict[str, Any]]:
        """Return every task that Flower knows, by id."""
        found: dict[str, dict[str, Any]] = self.ask("/api/tasks")
        return found

    def task(self, task_id: str) -> dict[str, Any] | None:
        """Return one task with everything that Flower says of it."""
        if http_status(f"{self.url}/api/task/info/{task_id}", login()) != 200:
            return None
        found: dict[str, Any] = self.ask(f"/api/task/info/{task_id}")
        return found

    def until(
        self, task_id: str, true: Callable[[dict[str, Any]], bool], what: str
    ) -> dict[str, Any]:
        """Return a task once it is as expected."""
        limit = Limit(_PATIENCE_S)
        while True:
            task = self.task(task_id)
            if task is not None and true(task):
                return task
            assert not limit.over, f"waited for {task_id} to {what}: it is {task}"
            time.sleep(0.05)

    def ask(self, path: str) -> Any:
        """Return the JSON of a page of the interface."""
        request = urllib.request.Request(self.url + path)
        request.add_header("Authorization", login())
        with urllib.request.urlopen(request, timeout=limit_s(10)) as answer:
            return json.load(answer)


@contextmanager
def flower_at(broker_url: str, log: Path, *words: str) -> Iterator[Flower]:
    """Yield a Flower of this broker on the loopback; `words` are more of its command line."""
    port = free_port(5555)
    where = ("--address", "127.0.0.1", "--port", str(port))
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "conductor", "flower", *words, *where],
            env={**plain(), "CONDUCTOR_FLOWER_PASSWORD": PASSWORD, BROKER: broker_url},
            cwd=CHECKOUT,
            stdout=output,
            stderr=output,
        )
    try:
        _wait_until_answering(f"http://127.0.0.1:{port}/healthcheck", log)
        yield Flower(f"http://127.0.0.1:{port}", log, process.pid)
    finally:
        process.terminate()
        assert process.wait(timeout=limit_s(20)) == 0


def login(password: str = PASSWORD) -> str:
    """Return the header of an operator."""
    return "Basic " + base64.b64encode(f"operator:{password}".encode()).decode()


def plain() -> dict[str, str]:
    """Return this process's environment without what configures ours."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("CONDUCTOR_", "FLOWER_"))}


def http_status(url: str, authorization: str = "", body: bytes | None = None) -> int | None:
    """Return the HTTP status, None when nothing answers."""
    request = urllib.request.Request(url, data=body)
    if authorization:
        request.add_header("Authorization", authorization)
    try:
        with urllib.request.urlopen(request, timeout=limit_s(10)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def _wait_until_answering(url: str, log: Path) -> None:
    limit = Limit(START_S)
    while http_status(url) != 200:
        assert not limit.over, log.read_text()
        time.sleep(0.1)
