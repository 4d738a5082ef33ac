"""Flower, started as the compose file does it, shows itself to operators and changes nothing."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.environment.variables import CHECKOUT
from tests.limits import limit_s
from tests.services.flowers import BROKER, PASSWORD, Flower, flower_at, http_status, login, plain

COMPOSE = yaml.safe_load((CHECKOUT / "deploy" / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def flower(broker_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flower]:
    """Yield a Flower with the compose file's command, on the loopback."""
    program, *words = COMPOSE["services"]["flower"]["command"]
    assert program == "flower"
    with flower_at(broker_url, tmp_path_factory.mktemp("flower") / "log", *words) as running:
        yield running


@pytest.mark.parametrize("path", ["/", "/tasks", "/api/tasks", "/api/workers"])
def test_only_operators_see_pages_and_the_interface(flower: Flower, path: str) -> None:
    assert http_status(flower.url + path) == 401
    assert http_status(flower.url + path, login("a secret")) == 401
    assert http_status(flower.url + path, login()) == 200


@pytest.mark.parametrize(
    "path",
    [
        *("/api/task/apply/conductor.build_instances", "/api/task/send-task/compute.destroy"),
        *("/api/task/revoke/some-id", "/api/worker/shutdown/some-worker"),
    ],
)
def test_not_even_an_operator_can_run_or_revoke_a_task_there(flower: Flower, path: str) -> None:
    assert http_status(flower.url + path, login(), body=b"{}") == 403


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
        timeout=limit_s(30),
    )
    assert answer.returncode == 2
    assert complaint in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert variables.get("CONDUCTOR_FLOWER_PASSWORD", "-") not in answer.stderr.split()
