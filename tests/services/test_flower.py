"""Flower, started as the compose file does it, shows itself to operators and changes nothing."""

import base64
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.environment.private import free_port
from tests.environment.variables import CHECKOUT

START_S = 30.0
COMPOSE = yaml.safe_load((CHECKOUT / "deploy" / "compose.yaml").read_text())
OPERATOR = "Basic " + base64.b64encode(b"operator:secret").decode()


@pytest.fixture(scope="module")
def flower(broker_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a Flower with the compose file's command and options."""
    port = free_port(5555)
    deployed = COMPOSE["services"]["flower"]
    program, *arguments = deployed["entrypoint"]
    options = {
        name: value for name, value in deployed["environment"].items() if "$" not in str(value)
    }
    environment = {
        **os.environ,
        **options,
        "CELERY_BROKER_URL": broker_url,
        "FLOWER_BASIC_AUTH": "operator:secret",
        "FLOWER_ADDRESS": "127.0.0.1",
        "FLOWER_PORT": str(port),
    }
    log = tmp_path_factory.mktemp("flower") / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name(program)), *arguments],
            env=environment,
            stdout=output,
            stderr=output,
        )
    try:
        wait_until_answering(f"http://127.0.0.1:{port}/healthcheck", log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=20)


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
def test_only_operators_see_pages_and_the_interface(flower: str, path: str) -> None:
    assert status(flower + path) == 401
    assert status(flower + path, OPERATOR) == 200


@pytest.mark.parametrize(
    "path", ["/api/task/apply/conductor.build_instances", "/api/task/revoke/some-id"]
)
def test_not_even_an_operator_can_run_or_revoke_a_task_there(flower: str, path: str) -> None:
    assert status(flower + path, OPERATOR, body=b"{}") == 403
