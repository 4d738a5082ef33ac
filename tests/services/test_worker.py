"""A process that consumes may be told to end, be killed, or lose its broker or its database."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pika
import pytest
from kombu import Connection

from models.ids import compute_queue
from models.messages.internal import (
    CONDUCTOR,
    DEAD_LETTERS,
    REPLY,
    REPORTS,
    SCHEDULER,
    SELECT_HOSTS,
    HostRequest,
    Instruction,
    OutgoingMessage,
    SelectHosts,
    Token,
    instruction_message,
)
from tasks.app import make_app
from tasks.routing import declare_topology
from tasks.sending.celery_carrier import CeleryCarrier
from tests.environment import variables
from tests.limits import Limit, limit_s
from tests.services.processes import Process, build_body, running

TASK = "conductor.build_instances"
TASK_ID = "0b9d7c1e-3f55-4a0e-8a94-7d1b64f0c1d2"
TOKEN = Token(operation_id=str(uuid.uuid4()), step="step", attempt=1, sequence=1)


@pytest.fixture(scope="module")
def vhost_url(fresh_vhost: Callable[[], str]) -> str:
    return fresh_vhost()


@pytest.fixture
def url(vhost_url: str) -> str:
    """A vhost without queues: what processes of earlier tests had in hand is gone with them."""
    with pika.BlockingConnection(pika.URLParameters(vhost_url)) as connection:
        for queue in (CONDUCTOR, SCHEDULER, REPORTS, DEAD_LETTERS, compute_queue("h1")):
            connection.channel().queue_delete(queue)
    return vhost_url


@pytest.fixture
def carrier(url: str) -> Iterator[CeleryCarrier]:
    with Connection(url) as connection:
        declare_topology(connection, ["h1"])
    carrier = CeleryCarrier(make_app(url))
    yield carrier
    carrier.close()


def request(name: str) -> OutgoingMessage:
    return OutgoingMessage(CONDUCTOR, TASK, build_body(name))


def waiting(url: str, queue: str) -> int:
    """Return how many messages a queue holds that nobody has taken; settles within a second."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        return int(connection.channel().queue_declare(queue, passive=True).method.message_count)


def test_sigterm_finishes_what_runs_and_gives_back_the_rest(
    url: str, carrier: CeleryCarrier
) -> None:
    with running("conductor", url) as conductor:
        slow = [request("slow-1") for _ in range(6)]
        carrier.send(slow)
        conductor.expect_many(4, what="begun")
        assert conductor.drain() == 0
        done = {told["id"] for told in conductor.told(what="request")}
    assert len(done) == 4
    with running("conductor", url) as successor:
        successor.expect_many(2, what="request")
        again = {told["id"] for told in successor.told(what="request")}
    assert done | again == {outgoing.id for outgoing in slow}
    assert not done & again


def test_an_idle_process_ends_promptly(url: str, carrier: CeleryCarrier) -> None:
    with running("conductor", url) as conductor:
        began = time.monotonic()
        assert conductor.drain() == 0
        assert time.monotonic() - began < 4


def test_ready_is_printed_once_and_alone_on_its_line(url: str, carrier: CeleryCarrier) -> None:
    with running("conductor", url) as conductor:
        carrier.send([outgoing := request("one")])
        conductor.expect(what="request", id=outgoing.id)
        assert conductor.printed.count("ready") == 1
        assert conductor.printed[0] == "ready"


def test_what_a_killed_process_had_in_hand_goes_to_the_next(
    url: str, carrier: CeleryCarrier
) -> None:
    with running("conductor", url) as victim:
        carrier.send([outgoing := request("slow-60")])
        victim.expect(what="begun", id=outgoing.id)
        victim.kill()
    with running("conductor", url) as successor:
        successor.expect(what="begun", id=outgoing.id)


def test_two_processes_share_the_work(url: str, carrier: CeleryCarrier) -> None:
    with running("conductor", url) as one, running("conductor", url) as other:
        outgoing_messages = [request("slow-0.05") for _ in range(100)]
        carrier.send(outgoing_messages)
        limit = Limit(20)
        while len(one.told(what="request")) + len(other.told(what="request")) < len(
            outgoing_messages
        ):
            assert not limit.over
            time.sleep(0.05)
        assert one.told(what="request")
        assert other.told(what="request")


def test_a_lost_connection_is_made_again_and_loses_nothing(
    url: str, carrier: CeleryCarrier, service_variables: dict[str, str]
) -> None:
    with running("conductor", url) as conductor:
        carrier.send([before := request("slow-2")])
        conductor.expect(what="begun", id=before.id)
        close_all_connections(url, service_variables)
        carrier.send([after := request("after")])
        conductor.expect(what="request", id=after.id)
        conductor.expect(what="request", id=before.id)
        assert conductor.alive
        assert conductor.drain() == 0
    assert waiting(url, CONDUCTOR) == 0


def close_all_connections(url: str, service_variables: dict[str, str]) -> None:
    control = shlex.split(service_variables[variables.BROKER_CONTROL])
    vhost = urlsplit(url).path.lstrip("/")
    command = [*control, "-q", "close_all_connections", "--vhost", vhost, "a test"]
    subprocess.run(command, check=True, capture_output=True, timeout=limit_s(60))


def test_while_the_database_is_away_messages_are_held_and_nothing_is_lost(
    url: str, carrier: CeleryCarrier, tmp_path: Path
) -> None:
    back = tmp_path / "store_is_back"
    with running("conductor", url, str(back)) as conductor:
        outgoing_messages = [request("away") for _ in range(8)]
        carrier.send(outgoing_messages)
        conductor.expect_many(8, what="held")
        assert not conductor.told(what="request")
        back.touch()
        told = conductor.expect_many(8, what="request")
        assert {row["id"] for row in told} == {outgoing.id for outgoing in outgoing_messages}
        assert not conductor.told(what="dead")
        assert conductor.drain() == 0
    assert waiting(url, CONDUCTOR) == 0


def test_held_messages_do_not_hold_up_the_end_of_the_process(
    url: str, carrier: CeleryCarrier
) -> None:
    with running("conductor", url, "/nowhere") as conductor:
        carrier.send([request("away")])
        conductor.expect(what="held")
        assert conductor.drain(patience_s=10) == 0
    assert waiting(url, CONDUCTOR) == 1


def test_a_long_absence_of_the_database_gives_messages_back_and_takes_them_again_after_it(
    url: str, carrier: CeleryCarrier, tmp_path: Path
) -> None:
    back = tmp_path / "store_is_back"
    with running("impatient", url, str(back)) as conductor:
        carrier.send(outgoing_messages := [request("away"), request("away")])
        conductor.expect_many(2, what="held")
        wait_until(lambda: waiting(url, CONDUCTOR) == 2)
        assert conductor.alive
        back.touch()
        wait_until(
            lambda: (
                {told["id"] for told in conductor.told(what="request")}
                == {outgoing.id for outgoing in outgoing_messages}
            )
        )
        carrier.send([after := request("after")])
        conductor.expect(what="request", id=after.id)
        assert conductor.drain() == 0
    assert waiting(url, CONDUCTOR) == 0


def wait_until(true: Callable[[], bool]) -> None:
    limit = Limit(20)
    while not true():
        assert not limit.over
        time.sleep(0.05)


def test_the_scheduler_chooses_and_its_messages_leave(url: str, carrier: CeleryCarrier) -> None:
    ask = SelectHosts(token=TOKEN, host_requests=(HostRequest(instance_id="i", operation_id="o"),))
    with running("scheduler", url) as scheduler:
        carrier.send([OutgoingMessage(SCHEDULER, SELECT_HOSTS, ask.to_json())])
        scheduler.expect(what="select", step="step")
        scheduler.expect(what="published", shown=["step"])


def test_a_malformed_ask_reaches_the_dead_letters(url: str, carrier: CeleryCarrier) -> None:
    with running("scheduler", url), running("conductor", url) as conductor:
        carrier.send([OutgoingMessage(SCHEDULER, SELECT_HOSTS, {"host_requests": []})])
        dead = conductor.expect(what="dead", queue=SCHEDULER)
        assert dead["reason"] == "field_missing: token is missing"


def test_a_host_tells_of_what_it_refuses_and_leaves_nothing_to_the_broker(
    url: str, carrier: CeleryCarrier
) -> None:
    with running("compute", url) as host, running("conductor", url) as conductor:
        carrier.send([OutgoingMessage("compute_h1", "compute.spawn", {"verb": "spawn"}, TASK_ID)])
        dead = conductor.expect(what="dead", queue="compute_h1")
        assert (dead["task"], dead["headers"]["id"]) == ("compute.spawn", TASK_ID)
        assert dead["reason"].startswith("field_missing: ")
        assert waiting(url, "dead_letters") == 0
        assert host.alive


def test_a_host_takes_its_instructions_even_with_verbs_of_the_future(
    url: str, carrier: CeleryCarrier
) -> None:
    with running("compute", url) as host:
        for verb in ("spawn", "teleport"):
            instruction = Instruction(token=TOKEN, instance_id="i", verb=verb)
            carrier.send([instruction_message("h1", instruction, root_id="r")])
            host.expect(what="instruction", verb=verb)


def test_a_host_whose_journal_failed_ends_and_leaves_the_instruction_to_its_successor(
    url: str, carrier: CeleryCarrier
) -> None:
    instruction = Instruction(token=TOKEN, instance_id="i", verb="spoil")
    with running("compute", url) as host:
        carrier.send([instruction_message("h1", instruction, root_id="r")])
        assert host.wait() == os.EX_SOFTWARE
    with running("compute", url) as successor:
        successor.expect(what="instruction", verb="spoil")


def test_of_two_processes_for_one_host_the_second_takes_over_when_the_first_dies(
    url: str, carrier: CeleryCarrier
) -> None:
    def instruct(number: int) -> None:
        instruction = Instruction(token=TOKEN, instance_id=f"i{number}", verb="spawn")
        carrier.send([instruction_message("h1", instruction, root_id="r")])

    with running("compute", url) as first, running("compute", url) as second:
        for number in range(4):
            instruct(number)
        first.expect_many(4, what="instruction")
        assert not second.told(what="instruction")
        first.kill()
        instruct(4)
        second.expect(what="instruction", instance_id="i4")


def test_reports_reach_the_conductor(url: str, carrier: CeleryCarrier) -> None:
    body = {"token": TOKEN.to_json(), "sender": "h1", "outcome": "done"}
    with running("conductor", url) as conductor:
        carrier.send([OutgoingMessage(REPORTS, REPLY, body)])
        conductor.expect(what="reply", sender="h1")


def test_a_process_waits_for_a_broker_that_is_not_there_and_still_ends_when_told() -> None:
    lonely = Process("conductor", "amqp://guest:guest@127.0.0.1:1//")
    lonely.wait_until_it_hears(signal.SIGTERM)
    assert lonely.alive
    assert lonely.drain(patience_s=15) == 0
    assert lonely.printed == []
