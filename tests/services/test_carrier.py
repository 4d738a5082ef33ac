"""Messages leave confirmed, or the caller hears which may not have."""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pika
import pytest
from kombu import Connection
from pika.adapters.blocking_connection import BlockingChannel

from models.errors import Unreachable
from models.messages.base import parse
from models.messages.examples import EXAMPLES
from models.messages.internal import CONDUCTOR, OutgoingMessage
from models.messages.notifications import OperationNotified, notification_message
from tasks.app import make_app
from tasks.routing import declare_topology
from tasks.sending.celery_carrier import BATCH, CeleryCarrier
from tests.environment import variables

TASK = "conductor.build_instances"


@pytest.fixture(scope="module")
def url(fresh_vhost: Callable[[], str]) -> str:
    url = fresh_vhost()
    with Connection(url) as connection:
        declare_topology(connection)
    return url


@pytest.fixture
def channel(url: str) -> Iterator[BlockingChannel]:
    """A plain client on an empty queue `conductor`."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_purge(CONDUCTOR)
        yield channel


@pytest.fixture
def carrier(url: str) -> Iterator[CeleryCarrier]:
    carrier = CeleryCarrier(make_app(url))
    yield carrier
    carrier.close()


def outgoing(number: int = 0, queue: str = CONDUCTOR) -> OutgoingMessage:
    return OutgoingMessage(
        queue, TASK, {"number": number}, root_id="r", parent_id="p", shown=f"no {number}"
    )


def bodies(channel: BlockingChannel, count: int) -> list[Any]:
    """Return the keyword arguments of the next `count` messages of the queue `conductor`."""
    found: list[Any] = []
    for method, _, body in channel.consume(CONDUCTOR, auto_ack=True, inactivity_timeout=5):
        assert method is not None, f"{len(found)} of {count} messages came"
        found.append(json.loads(body)[1])
        if len(found) == count:
            channel.cancel()
            return found
    raise AssertionError("consuming ended")


def test_a_message_is_one_that_any_celery_worker_runs(
    carrier: CeleryCarrier, channel: BlockingChannel
) -> None:
    sent = outgoing(7)
    carrier.send([sent])
    _, properties, body = channel.basic_get(CONDUCTOR, auto_ack=True)
    assert json.loads(body)[:2] == [[], {"number": 7}]
    assert properties.content_type == "application/json"
    assert properties.delivery_mode == 2
    assert properties.correlation_id == sent.id
    headers = properties.headers
    assert (headers["task"], headers["id"]) == (TASK, sent.id)
    assert (headers["root_id"], headers["parent_id"]) == ("r", "p")
    assert (headers["argsrepr"], headers["kwargsrepr"]) == ("()", "no 7")


def test_more_messages_than_a_batch_arrive_in_order(
    carrier: CeleryCarrier, channel: BlockingChannel
) -> None:
    count = 2 * BATCH + 3
    carrier.send([outgoing(number) for number in range(count)])
    assert [body["number"] for body in bodies(channel, count)] == list(range(count))


def test_a_message_for_no_queue_is_named_while_the_others_leave(
    carrier: CeleryCarrier, channel: BlockingChannel
) -> None:
    lost = outgoing(1, queue="compute_nowhere")
    with pytest.raises(Unreachable) as caught:
        carrier.send([outgoing(0), lost, outgoing(2)])
    assert caught.value.code == "unroutable"
    assert caught.value.data["unsent"] == [lost.id]
    assert [body["number"] for body in bodies(channel, 2)] == [0, 2]
    carrier.send([outgoing(3)])
    assert bodies(channel, 1) == [{"number": 3}]


def test_a_message_larger_than_a_frame_arrives_whole(
    carrier: CeleryCarrier, channel: BlockingChannel
) -> None:
    text = "é" * 300_000
    carrier.send([OutgoingMessage(CONDUCTOR, TASK, {"text": text}), outgoing(1)])
    assert bodies(channel, 2) == [{"text": text}, {"number": 1}]


def test_a_caller_gets_plain_json_on_its_own_queue(
    carrier: CeleryCarrier, channel: BlockingChannel
) -> None:
    mine = channel.queue_declare("", exclusive=True).method.queue
    answer = OutgoingMessage(
        mine, "conductor.request_refused", {"error": "x"}, parent_id="the-request"
    )
    carrier.send([answer])
    _, properties, body = channel.basic_get(mine, auto_ack=True)
    assert json.loads(body) == {"error": "x"}
    assert (properties.type, properties.correlation_id) == (answer.task, "the-request")


def test_a_reply_queue_that_is_gone_is_no_error(carrier: CeleryCarrier) -> None:
    carrier.send([OutgoingMessage(str(uuid.uuid4()), "conductor.request_refused", {})])


def test_whoever_binds_a_queue_hears_of_what_it_asked_for_and_nobody_has_to(
    carrier: CeleryCarrier, channel: BlockingChannel
) -> None:
    mine = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(mine, "notifications", "*.error")
    body = {**EXAMPLES[OperationNotified.task], "at": 1.5}
    failed = parse(OperationNotified, body)
    ended = failed.model_copy(update={"event": "end"})
    sent = notification_message(failed)
    carrier.send([notification_message(ended), sent])
    method, properties, heard = channel.basic_get(mine, auto_ack=True)
    assert method.routing_key == "live_migrate_instance.error"
    assert json.loads(heard) == body
    assert (properties.type, properties.message_id) == (sent.task, sent.id)
    assert properties.correlation_id == failed.operation_id
    assert properties.delivery_mode == 2
    assert channel.basic_get(mine, auto_ack=True) == (None, None, None)


def test_a_connection_that_died_while_idle_is_replaced(
    carrier: CeleryCarrier, url: str, service_variables: dict[str, str]
) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        connection.channel().queue_purge(CONDUCTOR)
    carrier.send([outgoing(1)])
    control = shlex.split(service_variables[variables.BROKER_CONTROL])
    vhost = urlsplit(url).path.lstrip("/")
    subprocess.run(
        [*control, "-q", "close_all_connections", "--vhost", vhost, "a test"],
        check=True,
        capture_output=True,
    )
    carrier.send([outgoing(2)])
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        assert bodies(connection.channel(), 2) == [{"number": 1}, {"number": 2}]


def test_many_threads_send_at_once_and_everything_arrives_once(
    carrier: CeleryCarrier, channel: BlockingChannel
) -> None:
    def send(first: int) -> None:
        for start in range(first, first + 50, 10):
            carrier.send([outgoing(number) for number in range(start, start + 10)])

    with ThreadPoolExecutor(8) as crew:
        list(crew.map(send, range(0, 400, 50)))
    assert sorted(body["number"] for body in bodies(channel, 400)) == list(range(400))


def test_no_broker_is_unreachable_at_once() -> None:
    carrier = CeleryCarrier(make_app("amqp://guest:guest@127.0.0.1:1//"))
    sent = [outgoing(1), outgoing(2)]
    began = time.monotonic()
    with pytest.raises(Unreachable) as caught:
        carrier.send(sent)
    assert time.monotonic() - began < 5
    assert caught.value.code == "broker_unreachable"
    assert caught.value.data["unsent"] == [item.id for item in sent]


def test_a_broker_that_never_answers_is_unreachable_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert_unreachable_in_time(CeleryCarrier(make_app(f"amqp://guest@127.0.0.1:{port}//")))


def test_a_broker_that_stops_reading_is_unreachable_in_time(url: str) -> None:
    """This is what a blocked broker does: it takes bytes from the socket no more."""
    with frozen_on_demand(url) as (through, freeze):
        carrier = CeleryCarrier(make_app(through))
        carrier.send([outgoing(1)])
        freeze.set()
        assert_unreachable_in_time(carrier)


def assert_unreachable_in_time(carrier: CeleryCarrier) -> None:
    began = time.monotonic()
    with pytest.raises(Unreachable):
        carrier.send([outgoing(number) for number in range(500)])
    assert time.monotonic() - began < 15


@contextmanager
def frozen_on_demand(url: str) -> Iterator[tuple[str, threading.Event]]:
    """Yield the URL of a relay to the broker, and the event that makes it stop relaying."""
    freeze = threading.Event()
    parts = urlsplit(url)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            try:
                while True:
                    inner, _ = server.accept()
                    outer = socket.create_connection((parts.hostname, parts.port))
                    for source, target in ((inner, outer), (outer, inner)):
                        threading.Thread(target=relay, args=(source, target), daemon=True).start()
            except OSError:
                return

        def relay(source: socket.socket, target: socket.socket) -> None:
            while (data := source.recv(65_536)) and not freeze.is_set():
                target.sendall(data)

        threading.Thread(target=accept, daemon=True).start()
        port = server.getsockname()[1]
        yield f"amqp://guest:guest@127.0.0.1:{port}{parts.path}", freeze
