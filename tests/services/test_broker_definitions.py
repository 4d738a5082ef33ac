"""What deploy/rabbitmq gives a broker is what the product wants; a host may do little there."""

import itertools
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pika
import pika.exceptions
import pytest
from kombu import Connection
from pika.adapters.blocking_connection import BlockingChannel

from models.ids import compute_queue
from tasks.routing import declare_topology
from tests.environment import variables
from tests.environment.variables import CHECKOUT
from tests.limits import limit_s

RABBITMQ = CHECKOUT / "deploy" / "rabbitmq"
HOST = "Node1.Example.org"


@dataclass(frozen=True)
class Broker:
    """A vhost that holds the definitions, and the account of one host on it."""

    url: str
    control: str
    host_url: str

    def ask(self, *arguments: str) -> list[str]:
        """Return the lines that rabbitmqctl prints about the vhost."""
        command = [*shlex.split(self.control), "-q", *arguments, "-p", vhost_of(self.url)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split(
            "\n"
        )


def vhost_of(url: str) -> str:
    return urlsplit(url).path.lstrip("/")


@pytest.fixture(scope="module")
def broker(fresh_vhost: Callable[[], str], service_variables: dict[str, str]) -> Iterator[Broker]:
    url = fresh_vhost()
    control = service_variables[variables.BROKER_CONTROL]
    account = run(
        [str(RABBITMQ / "add-host"), HOST, vhost_of(url)],
        env={**os.environ, "RABBITMQCTL": control},
    )
    user, password = account.split()
    parts = urlsplit(url)
    yield Broker(
        url, control, f"amqp://{user}:{password}@{parts.hostname}:{parts.port}{parts.path}"
    )
    run([*shlex.split(control), "-q", "delete_user", user])


@pytest.fixture
def channel(broker: Broker) -> Iterator[BlockingChannel]:
    """A channel of the host's own account, with publisher confirms."""
    with pika.BlockingConnection(pika.URLParameters(broker.host_url)) as connection:
        opened = connection.channel()
        opened.confirm_delivery()
        yield opened


def run(command: list[str], given: str = "", env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        input=given,
        env=env,
        check=False,
        capture_output=True,
        text=True,
        timeout=limit_s(60),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_definitions_are_what_the_product_declares(broker: Broker) -> None:
    listings = (["list_queues", "name", "arguments"], ["list_exchanges"], ["list_bindings"])
    before = [sorted(broker.ask(*listing)) for listing in listings]
    with Connection(broker.url) as connection:
        declare_topology(connection, [HOST])
    after = [sorted(broker.ask(*listing)) for listing in listings]
    assert [line for line in after[0] if line not in before[0]] == []
    assert after[1:] == before[1:]


def test_a_host_may_report(channel: BlockingChannel) -> None:
    channel.basic_publish("reports", "reports", b"{}", mandatory=True)


def test_a_host_may_read_its_own_queue(broker: Broker, channel: BlockingChannel) -> None:
    queue = compute_queue(HOST)
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as owner:
        owner.channel().basic_publish("asks", queue, b"{}")
    method, _, body = next(channel.consume(queue, inactivity_timeout=10))
    channel.basic_ack(method.delivery_tag)
    assert body == b"{}"


@pytest.mark.parametrize(
    "exchange", ["", "conductor", "asks", "dead_letters", "notifications", "celeryev", "amq.topic"]
)
def test_a_host_may_not_write_to_anybody_else(channel: BlockingChannel, exchange: str) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"):
        channel.basic_publish(exchange, "conductor", b"{}")


@pytest.mark.parametrize("queue", ["reports", "conductor", "scheduler", "dead_letters"])
def test_a_host_may_not_read_what_is_meant_for_others(channel: BlockingChannel, queue: str) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"):
        channel.basic_get(queue)


def test_a_host_may_declare_nothing(channel: BlockingChannel) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"):
        channel.queue_declare("compute_mine", durable=True)


def test_a_worker_reports_with_no_more_rights_than_that(broker: Broker, tmp_path: Path) -> None:
    deploy = CHECKOUT / "deploy"
    command = ["serve", "compute", "--host", HOST, "--hypervisor", "simulated"]
    options = ["--topology", str(deploy / "host.example.json"), "--state-dir", str(tmp_path)]
    others = {name: value for name, value in os.environ.items() if "CONDUCTOR" not in name}
    log = tmp_path / "log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, "-m", "conductor", *command, *options],
            env={**others, "CONDUCTOR_BROKER_URL": broker.host_url},
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
        ) as worker,
        pika.BlockingConnection(pika.URLParameters(broker.url)) as reader,
    ):
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n", log.read_text()
            channel = reader.channel()
            heard = channel.consume("reports", auto_ack=True, inactivity_timeout=20)
            # What another test has left there may come first.
            headers = (props.headers or {} for _, props, body in itertools.islice(heard, 3) if body)
            assert any("reports.hello" in str(header.get("task")) for header in headers), (
                log.read_text()
            )
        finally:
            worker.terminate()
            code = worker.wait(timeout=limit_s(20))
    assert code == 0, log.read_text()
