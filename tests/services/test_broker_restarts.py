"""A broker of our own restarts, dies and runs out of memory under our processes."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kombu import Connection

from models.errors import Unreachable
from models.messages.internal import CONDUCTOR, OutgoingMessage
from tasks.app import make_app
from tasks.routing import declare_topology
from tasks.sending.celery_carrier import CeleryCarrier
from tests.environment import private, variables
from tests.limits import Limit, limit_s
from tests.services.processes import build_body, running

# It starts a broker from the binaries of this machine, which `make test` does not ask for.
pytestmark = pytest.mark.chaos

RESTART_S = 60.0
Control = Callable[..., None]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[private.Server]:
    server = private.start_rabbitmq(Path(tmp_path_factory.mktemp("broker")))
    yield server
    private.stop(server.stop)


@pytest.fixture(scope="module")
def url(server: private.Server) -> str:
    url = server.values[variables.BROKER_URL] + "/"
    with Connection(url) as connection:
        declare_topology(connection)
    return url


@pytest.fixture
def control(server: private.Server) -> Control:
    """Run rabbitmqctl on our own broker."""

    def run(*arguments: str) -> None:
        command = [*shlex.split(server.values[variables.BROKER_CONTROL]), "-q", *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=limit_s(120))

    return run


@pytest.fixture
def carrier(url: str) -> Iterator[CeleryCarrier]:
    carrier = CeleryCarrier(make_app(url))
    yield carrier
    carrier.close()


def request(name: str) -> OutgoingMessage:
    return OutgoingMessage(CONDUCTOR, "conductor.build_instances", build_body(name))


def send_until_taken(carrier: CeleryCarrier, outgoing_messages: list[OutgoingMessage]) -> int:
    """Send as the outbox does: the same messages again until the broker has them all."""
    limit = Limit(RESTART_S)
    refusals = 0
    while outgoing_messages:
        try:
            carrier.send(outgoing_messages)
        except Unreachable as error:
            assert not limit.over
            outgoing_messages = [
                outgoing for outgoing in outgoing_messages if outgoing.id in error.data["unsent"]
            ]
            refusals += 1
            time.sleep(0.2)
        else:
            break
    return refusals


def test_a_restart_of_the_broker_ends_no_process_and_loses_no_message(
    url: str, carrier: CeleryCarrier, control: Control
) -> None:
    with running("conductor", url) as conductor:
        before = [request("slow-0.2") for _ in range(60)]
        carrier.send(before)
        conductor.expect_many(4, what="begun")
        control("stop_app")
        during = [request("one")]
        with pytest.raises(Unreachable):
            carrier.send(during)
        control("start_app")
        send_until_taken(carrier, during)
        wanted = {outgoing.id for outgoing in before + during}
        expect_all(conductor.told, wanted)
        assert conductor.alive
        assert not conductor.told(what="dead")
        assert conductor.drain() == 0


def expect_all(told: Callable[..., list[dict[str, str]]], wanted: set[str]) -> None:
    limit = Limit(RESTART_S)
    while missing := wanted - {row["id"] for row in told(what="request")}:
        assert not limit.over, f"{len(missing)} of {len(wanted)} are missing"
        time.sleep(0.1)


def test_a_broker_out_of_memory_is_unreachable_until_it_recovers(
    url: str, carrier: CeleryCarrier, control: Control
) -> None:
    with running("conductor", url) as conductor:
        control("set_vm_memory_high_watermark", "0.0000001")
        try:
            time.sleep(1)
            outgoing_messages = [request("one") for _ in range(5)]
            began = time.monotonic()
            with pytest.raises(Unreachable) as caught:
                carrier.send(outgoing_messages)
            assert time.monotonic() - began < 15
            assert caught.value.data["unsent"] == [outgoing.id for outgoing in outgoing_messages]
        finally:
            control("set_vm_memory_high_watermark", "0.4")
        send_until_taken(carrier, outgoing_messages)
        expect_all(conductor.told, {outgoing.id for outgoing in outgoing_messages})


def test_a_broker_that_comes_back_empty_gets_its_topology_again(
    url: str, carrier: CeleryCarrier, control: Control
) -> None:
    with running("conductor", url) as conductor:
        control("stop_app")
        control("force_reset")
        control("start_app")
        outgoing_messages = [request("one")]
        send_until_taken(carrier, outgoing_messages)
        expect_all(conductor.told, {outgoing_messages[0].id})
