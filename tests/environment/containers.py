"""Start the services with `docker compose`, for who may not install packages."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from tests.environment import variables
from tests.environment.private import Server, StartError, free_port

PROJECT = "conductor-tests"
START_TIMEOUT_S = 300

COMPOSE_NAMES: Mapping[str, str] = {
    "RabbitMQ": "rabbitmq",
    "PostgreSQL": "postgres",
    "Redis": "redis",
}


def available() -> bool:
    """Tell whether a container engine with compose answers."""
    if shutil.which("docker") is None:
        return False
    asked = subprocess.run(
        ["docker", "compose", "ls", "--quiet"], check=False, capture_output=True, timeout=30
    )
    return asked.returncode == 0


def start(services: Sequence[str]) -> dict[str, Server]:
    """Start the named services of deploy/compose.yaml on free ports of the loopback."""
    password = secrets.token_hex(12)
    ports = {"RabbitMQ": free_port(5672), "PostgreSQL": free_port(5432), "Redis": free_port(6379)}
    _compose_up([COMPOSE_NAMES[service] for service in services], settings(ports, password))
    values = _values(ports, password)
    stop = ("docker", "compose", "--project-name", PROJECT, "down", "--volumes")
    return {service: Server(ports[service], values[service], stop) for service in services}


def settings(ports: Mapping[str, int], password: str) -> dict[str, str]:
    """Return the variables that the compose file reads; it wants all passwords, used or not."""
    return {
        "RABBITMQ_PASSWORD": password,
        "POSTGRES_PASSWORD": password,
        "REDIS_PASSWORD": password,
        "FLOWER_PASSWORD": password,
        "RABBITMQ_PORT": str(ports["RabbitMQ"]),
        "POSTGRES_PORT": str(ports["PostgreSQL"]),
        "REDIS_PORT": str(ports["Redis"]),
    }


def _compose_up(names: Sequence[str], chosen: Mapping[str, str]) -> None:
    file = variables.CHECKOUT / "deploy" / "compose.yaml"
    command = ["docker", "compose", "--project-name", PROJECT, "--file", str(file),
               "up", "--detach", "--wait", *names]  # fmt: skip
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=START_TIMEOUT_S,
            env={**os.environ, **chosen},
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or ["no reason given"]
        raise StartError(f"docker compose up: {lines[-1]}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StartError(f"docker compose up: {error}") from error


def _values(ports: Mapping[str, int], password: str) -> dict[str, dict[str, str]]:
    broker = f"amqp://conductor:{password}@127.0.0.1:{ports['RabbitMQ']}/"
    database = f"conductor:{password}@127.0.0.1:{ports['PostgreSQL']}/conductor"
    return {
        "RabbitMQ": {
            variables.BROKER_URL: broker,
            variables.BROKER_CONTROL: f"docker exec {PROJECT}-rabbitmq-1 rabbitmqctl",
        },
        "PostgreSQL": {variables.DATABASE_URL: f"postgresql+psycopg://{database}"},
        "Redis": {variables.RESULT_URL: f"redis://:{password}@127.0.0.1:{ports['Redis']}/0"},
    }
