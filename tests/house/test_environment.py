"""The tool that finds or starts the services says the right thing about each port."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.environment import private, probes, variables
from tests.environment.probes import Answers, Probe, Silent
from tests.limits import limit_s

EVERY_PROBE = pytest.mark.parametrize("probe", [probes.rabbitmq, probes.postgresql, probes.redis])


@contextmanager
def port_that_replies(reply: bytes) -> Iterator[int]:
    """Listen on the loopback, answer whatever comes with `reply`, and hang up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve_one() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(reply)

        thread = threading.Thread(target=serve_one, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(timeout=limit_s(5))


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@EVERY_PROBE
def test_a_port_where_nothing_listens_is_said_to_be_so(probe: Probe) -> None:
    port = unused_port()
    assert probe(f"any://127.0.0.1:{port}/") == Silent(f"nothing listens on 127.0.0.1:{port}")


@EVERY_PROBE
def test_a_server_that_hangs_up_is_not_usable(probe: Probe) -> None:
    with port_that_replies(b"") as port:
        verdict = probe(f"any://127.0.0.1:{port}/")
    assert verdict == Silent(f"127.0.0.1:{port} hangs up during the login")


@EVERY_PROBE
def test_a_server_of_another_protocol_is_not_usable(probe: Probe) -> None:
    with port_that_replies(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        verdict = probe(f"any://127.0.0.1:{port}/")
    assert isinstance(verdict, Silent)


def test_a_database_that_wants_a_password_is_not_usable_without_one() -> None:
    wants_scram = b"R\x00\x00\x00\x17\x00\x00\x00\x0aSCRAM-SHA-256\x00\x00"
    with port_that_replies(wants_scram) as port:
        verdict = probes.postgresql(f"postgresql://me@127.0.0.1:{port}/")
    assert verdict == Silent(f"127.0.0.1:{port} asks the PostgreSQL user me for a password")


def test_the_services_that_the_tests_use_answer(service_variables: dict[str, str]) -> None:
    assert probes.rabbitmq(service_variables[variables.BROKER_URL]) == Answers()
    assert probes.postgresql(service_variables[variables.DATABASE_URL]) == Answers()
    assert probes.redis(service_variables[variables.RESULT_URL]) == Answers()


def test_a_free_port_is_above_the_usual_one_and_not_in_use() -> None:
    first = private.free_port(20_000)
    with socket.create_server(("127.0.0.1", first)):
        assert private.free_port(20_000) > first > 20_000


def test_a_server_that_the_environment_names_and_that_is_silent_is_a_failure_of_one_line() -> None:
    port = unused_port()
    answer = subprocess.run(
        [sys.executable, "-m", "tests.environment", "ensure"],
        env={**os.environ, "TEST_BROKER_URL": f"amqp://guest:guest@127.0.0.1:{port}/"},
        cwd=variables.CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 1
    assert answer.stderr == f"services: RabbitMQ: nothing listens on 127.0.0.1:{port}\n"


def test_variables_survive_being_written(tmp_path: Path) -> None:
    file = tmp_path / "services.env"
    variables.write(file, variables.DEFAULTS)
    assert variables.read(file) == dict(variables.DEFAULTS)


def test_the_tool_needs_nothing_installed() -> None:
    bare = subprocess.run(
        [sys.executable, "-S", "-c", "import tests.environment.__main__"],
        cwd=variables.CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert bare.returncode == 0, bare.stderr
