"""The deployment files say only what the product understands."""

import json
import os
import re
import shlex
import subprocess
import sys
from typing import Any

import pytest
import yaml

from tests.environment import containers
from tests.environment.variables import CHECKOUT

DEPLOY = CHECKOUT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
OURS = {name: one for name, one in COMPOSE["services"].items() if one["image"] == "vm-conductor"}


def commands() -> list[tuple[str, ...]]:
    """Collect the `conductor` command lines of the compose file and of the units."""
    in_containers = [one["command"] for one in OURS.values() if "entrypoint" not in one]
    lines = [re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE) for unit in UNITS]
    in_units = [shlex.split(line)[1:] for found in lines for line in found]
    return sorted({tuple(command) for command in [*in_containers, *in_units]})


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_that_is_deployed_exists_with_its_options(
    command: tuple[str, ...],
) -> None:
    # Options are read before --help answers, so an unknown one is refused here too.
    answer = subprocess.run(
        [sys.executable, "-m", "conductor", *command, "--help"],
        env={name: value for name, value in os.environ.items() if "CONDUCTOR" not in name},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr


def test_hosts_are_given_the_broker_and_nothing_of_the_database() -> None:
    assert set(OURS["compute"]["environment"]) == {"CONDUCTOR_BROKER_URL"}


def test_no_password_is_written_down() -> None:
    settings = (DEPLOY / "env.example").read_text().splitlines()
    assert all(line.startswith("#") or line.endswith("=") for line in settings)


def test_every_password_of_the_compose_file_has_to_be_set() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    used = set(re.findall(r"\$\{(\w+_PASSWORD)", text))
    required = set(re.findall(r"\$\{(\w+_PASSWORD):\?", text))
    offered = set(re.findall(r"^(\w+)=", (DEPLOY / "env.example").read_text(), re.MULTILINE))
    assert used == required == offered


def test_the_tests_own_containers_get_every_variable_that_the_compose_file_wants() -> None:
    given = containers.settings({"RabbitMQ": 1, "PostgreSQL": 2, "Redis": 3}, "secret")
    text = (DEPLOY / "compose.yaml").read_text()
    assert set(re.findall(r"\$\{(\w+):\?", text)) <= set(given)
    assert set(containers.COMPOSE_NAMES.values()) <= set(COMPOSE["services"])
    assert all(f"${{{name}" in text for name in given)


def test_every_published_port_is_bound_to_the_loopback() -> None:
    ports = [port for one in COMPOSE["services"].values() for port in one.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_example_host_adds_up() -> None:
    host = json.loads((DEPLOY / "host.example.json").read_text())
    for cell in host["cells"]:
        pages_mib = sum(size_kib * total for size_kib, total, _, _ in cell["mempages"]) // 1024
        threads = sorted(cpu for core in cell["siblings"] for cpu in core)
        assert pages_mib <= cell["memory"]
        assert threads == sorted(cell["cpuset"] + cell["pcpuset"])


def test_every_unit_restarts_what_was_killed() -> None:
    assert UNITS
    assert all("Restart=always" in unit.read_text() for unit in UNITS)


def test_the_image_holds_every_package() -> None:
    copied = re.findall(r"^COPY (\w+) \1$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    assert set(copied) == {"conductor", "models", "tasks", "workers"}
