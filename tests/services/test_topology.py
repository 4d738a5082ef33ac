"""The topology is declared by whoever may, as often as they like, and never differently."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pika
import pytest
from kombu import Connection

from models.errors import Rejected, Unreachable
from models.messages.internal import Instruction, Token, instruction_message
from tasks.app import check_late_acknowledgement, make_app
from tasks.consuming.reconnecting import FIRST_PAUSE_S, LASTS_S, MOST_PAUSE_S, Backoff
from tasks.routing import declare_topology, is_ours
from tasks.sending.celery_carrier import CeleryCarrier
from tests.environment import variables
from tests.limits import Limit
from tests.services.processes import START_S, Process, running

TOKEN = Token(operation_id="00000000-0000-4000-8000-000000000000", step="s", attempt=1, sequence=1)


@pytest.fixture(scope="module")
def url(fresh_vhost: Callable[[], str]) -> str:
    url = fresh_vhost()
    with Connection(url) as connection:
        declare_topology(connection, ["h1"])
    return url


@pytest.fixture(scope="module")
def account_of_h1(url: str, service_variables: dict[str, str]) -> Iterator[str]:
    """The URL of a user who may read the queue of h1 and write reports."""
    control = [*shlex.split(service_variables[variables.BROKER_CONTROL]), "-q"]
    parts = urlsplit(url)
    vhost = parts.path.lstrip("/")
    user = f"h1_{vhost}"
    for command in (
        ["add_user", user, "secret"],
        ["set_permissions", "-p", vhost, user, "^$", "^reports$", "^compute_h1$"],
    ):
        subprocess.run([*control, *command], check=True, capture_output=True)
    netloc = f"{user}:secret@{parts.hostname}:{parts.port}"
    yield urlunsplit((parts.scheme, netloc, parts.path, "", ""))
    subprocess.run([*control, "delete_user", user], check=True, capture_output=True)


def test_declaring_again_is_harmless(url: str) -> None:
    with Connection(url) as connection:
        for hosts in ([], ["h1"], ["h1", "h2"]):
            declare_topology(connection, hosts)


def test_a_queue_that_is_there_with_other_properties_is_named(
    fresh_vhost: Callable[[], str],
) -> None:
    url = fresh_vhost()
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        connection.channel().queue_declare("scheduler", durable=False)
    with Connection(url) as connection, pytest.raises(Rejected, match="'scheduler'") as caught:
        declare_topology(connection)
    assert caught.value.code == "topology_differs"


def test_who_may_not_declare_is_told_so(account_of_h1: str) -> None:
    with Connection(account_of_h1) as connection, pytest.raises(Rejected) as caught:
        declare_topology(connection, ["h1"])
    assert caught.value.code == "broker_forbids"


def test_a_broker_that_is_not_there_is_unreachable() -> None:
    with Connection("amqp://127.0.0.1:1//") as connection, pytest.raises(Unreachable):
        declare_topology(connection)


def test_a_host_with_few_rights_works_and_reports(url: str, account_of_h1: str) -> None:
    carrier = CeleryCarrier(make_app(url))
    instruction = Instruction(token=TOKEN, instance_id="i", verb="spawn")
    with running("compute", account_of_h1) as host:
        carrier.send([instruction_message("h1", instruction, root_id=TOKEN.operation_id)])
        host.expect(what="instruction", instance_id="i")
        assert host.drain() == 0
    carrier.close()


def test_a_host_whose_queue_is_missing_waits_for_it_and_says_so_once(
    url: str, account_of_h1: str, tmp_path: Path
) -> None:
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.queue_delete("compute_h1")
    errors = tmp_path / "errors"
    host = Process("compute", account_of_h1, errors=errors)
    limit = Limit(START_S)
    while not (said := errors.read_text()).count("no queue 'compute_h1'"):
        assert not limit.over
        time.sleep(0.1)
    with Connection(url) as connection:
        declare_topology(connection, ["h1"])
    host.wait_ready()
    said = errors.read_text()
    assert said.count("no queue 'compute_h1'") == 1, said
    assert said.count("the topology is taken to be declared") == 1, said
    assert "Traceback" not in said
    host.kill()


def test_a_connection_that_does_not_last_is_followed_by_ever_longer_pauses() -> None:
    backoff, now, pauses = Backoff(), 0.0, []
    for _ in range(7):
        pauses.append(backoff.pause_s(now))
        now += pauses[-1] + 0.5
    assert pauses == [0.0, FIRST_PAUSE_S, 2.0, 4.0, 8.0, MOST_PAUSE_S, MOST_PAUSE_S]
    now += MOST_PAUSE_S + LASTS_S
    assert backoff.pause_s(now) == 0.0
    assert backoff.pause_s(now + 1.0) == FIRST_PAUSE_S


def test_what_a_host_may_not_write_is_unreachable_and_not_lost_in_silence(
    account_of_h1: str,
) -> None:
    carrier = CeleryCarrier(make_app(account_of_h1))
    instruction = Instruction(token=TOKEN, instance_id="i", verb="spawn")
    outgoing = instruction_message("h1", instruction, root_id=TOKEN.operation_id)
    with pytest.raises(Unreachable) as caught:
        carrier.send([outgoing])
    assert caught.value.data["unsent"] == [outgoing.id]


@pytest.mark.parametrize(
    "name", ["conductor", "scheduler", "reports", "dead_letters", "compute_h1", "compute_"]
)
def test_our_queues_are_told_from_those_of_callers(name: str) -> None:
    assert is_ours(name)
    assert not is_ours("x" + name)


def test_late_acknowledgement_alone_is_refused() -> None:
    app = make_app("amqp://")
    check_late_acknowledgement(app)
    app.conf.task_reject_on_worker_lost = False
    with pytest.raises(Rejected, match="the configuration sets acks_late"):
        check_late_acknowledgement(app)


def test_late_acknowledgement_alone_is_refused_for_a_single_task() -> None:
    app = make_app("amqp://")

    def careless() -> None:
        """Do nothing."""

    app.task(name="careless", reject_on_worker_lost=False)(careless)
    with pytest.raises(Rejected, match="task careless sets acks_late"):
        check_late_acknowledgement(app)
