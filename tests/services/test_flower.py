"""Flower, started as the compose file does it, shows itself to operators and changes nothing."""

import base64
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.environment.private import free_port
from tests.environment.variables import CHECKOUT

START_S = 30.0
BROKER = "CONDUCTOR_BROKER_URL"
COMPOSE = yaml.safe_load((CHECKOUT / "deploy" / "compose.yaml").read_text())
PASSWORD = "a secret, with a comma"
OPERATOR = "Basic " + base64.b64encode(f"operator:{PASSWORD}".encode()).decode()


@dataclass(frozen=True)
class Flower:
    """Where a running Flower answers, what it said, and which process it is."""

    url: str
    log: Path
    pid: int


@pytest.fixture(scope="module")
def flower(broker_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flower]:
    """Yield a Flower with the compose file's command, on the loopback."""
    port = free_port(5555)
    command = COMPOSE["services"]["flower"]["command"]
    where = ("--address", "127.0.0.1", "--port", str(port))
    log = tmp_path_factory.mktemp("flower") / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "conductor", *command, *where],
            env={**plain(), "CONDUCTOR_FLOWER_PASSWORD": PASSWORD, BROKER: broker_url},
            cwd=CHECKOUT,
            stdout=output,
            stderr=output,
        )
    try:
        wait_until_answering(f"http://127.0.0.1:{port}/healthcheck", log)
        yield Flower(f"http://127.0.0.1:{port}", log, process.pid)
    finally:
        process.terminate()
        assert process.wait(timeout=20) == 0


def plain() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(("CONDUCTOR_", "FLOWER_"))}


def wait_until_answering(url: str, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while status(url) != 200:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def status(url: str, authorization: str = "", body: bytes | None = None) -> int | None:
    """Return the HTTP status, None when nothing answers."""
    request = urllib.request.Request(url, data=body)
    if authorization:
        request.add_header("Authorization", authorization)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


@pytest.mark.parametrize("path", ["/", "/tasks", "/api/tasks", "/api/workers"])
def test_only_operators_see_pages_and_the_interface(flower: Flower, path: str) -> None:
    wrong = "Basic " + base64.b64encode(b"operator:a secret").decode()
    assert status(flower.url + path) == 401
    assert status(flower.url + path, wrong) == 401
    assert status(flower.url + path, OPERATOR) == 200


@pytest.mark.parametrize(
    "path",
    [
        *("/api/task/apply/conductor.build_instances", "/api/task/send-task/compute.destroy"),
        *("/api/task/revoke/some-id", "/api/worker/shutdown/some-worker"),
    ],
)
def test_not_even_an_operator_can_run_or_revoke_a_task_there(flower: Flower, path: str) -> None:
    assert status(flower.url + path, OPERATOR, body=b"{}") == 403


def test_the_password_is_neither_in_the_list_of_processes_nor_in_the_log(flower: Flower) -> None:
    assert PASSWORD not in Path(f"/proc/{flower.pid}/cmdline").read_text()
    said = flower.log.read_text()
    assert f"Flower answers on {flower.url} to operator" in said
    assert PASSWORD not in said


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({}, "CONDUCTOR_BROKER_URL is not set"),
        ({BROKER: "amqp://h/"}, "CONDUCTOR_FLOWER_PASSWORD is not set"),
        ({BROKER: "amqp://h/", "CONDUCTOR_FLOWER_PASSWORD": "s\u00e9same"}, "should be ASCII"),
        (
            {BROKER: "amqp://h/", "CONDUCTOR_FLOWER_PASSWORD": "x", "CONDUCTOR_FLOWER_USER": "a:b"},
            "CONDUCTOR_FLOWER_USER is a:b: should be a name without a colon",
        ),
    ],
)
def test_without_a_usable_login_it_does_not_start(
    variables: dict[str, str], complaint: str
) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "conductor", "flower"],
        env={**plain(), **variables},
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert answer.returncode == 2
    assert complaint in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert variables.get("CONDUCTOR_FLOWER_PASSWORD", "-") not in answer.stderr.split()
