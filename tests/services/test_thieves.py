"""What a stolen account can do: a host's is worth its own host, a sender's its own requests.

Accounts are those that deploy's scripts make, the broker is a real one, and what is tried follows
from what the broker holds and from the messages that there are.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from models.ids import compute_queue
from models.messages.internal import (
    HEARTBEAT,
    INVENTORY_REPORT,
    PROGRESS,
    REFUSED,
    REGISTRATION,
    REPLY,
)
from models.messages.requests import REQUESTS
from tasks.conductor_tasks import KINDS
from tests.environment import variables
from tests.environment.variables import CHECKOUT
from tests.messages.message_examples import ALL_EXAMPLES
from tests.services.processes import Process, build_body, running

SCRIPTS = CHECKOUT / "deploy" / "rabbitmq"
HELD = json.loads((SCRIPTS / "definitions.json").read_text())
EXCHANGES = ["", "amq.topic", "amq.fanout", "amq.direct", *(e["name"] for e in HELD["exchanges"])]
VICTIM = "victim"
QUEUES = [*(queue["name"] for queue in HELD["queues"]), compute_queue(VICTIM)]
MARK = uuid.uuid4().hex[:8]
HOST, SERVICE = f"h-{MARK}", f"s-{MARK}"
ACCOUNTS = {"host": f"compute_{HOST}", "sender": f"sender_{SERVICE}"}
MAY_WRITE = {"host": "reports", "sender": "conductor"}


@dataclass(frozen=True)
class Stolen:
    """A broker with a conductor, its administrator's URL, and the URL of each stolen account."""

    url: str
    conductor: Process
    urls: dict[str, str]

    connections: dict[str, pika.BlockingConnection] = field(default_factory=dict)

    def open(self, who: str) -> BlockingChannel:
        """Return a fresh channel, which what is refused closes, of the account's connection."""
        if who not in self.connections:
            parameters = pika.URLParameters(self.urls.get(who, self.url))
            parameters.heartbeat = 0  # between two tests nobody answers the broker's
            self.connections[who] = pika.BlockingConnection(parameters)
        channel = self.connections[who].channel()
        channel.confirm_delivery()
        return channel


@pytest.fixture(scope="module")
def stolen(fresh_vhost: Callable[[], str], service_variables: dict[str, str]) -> Iterator[Stolen]:
    url = fresh_vhost()
    parts = urlsplit(url)
    control = service_variables[variables.BROKER_CONTROL]
    urls = {}
    for who, script, name in (("host", "add-host", HOST), ("sender", "add-sender", SERVICE)):
        made = subprocess.run(
            [str(SCRIPTS / script), name, parts.path.lstrip("/")],
            env={**os.environ, "RABBITMQCTL": control},
            capture_output=True,
            text=True,
            check=True,
        )
        account, password = made.stdout.split()
        assert account == ACCOUNTS[who]
        urls[who] = f"amqp://{account}:{password}@{parts.hostname}:{parts.port}{parts.path}"
    with running("conductor", url) as conductor:
        there = Stolen(url, conductor, urls)
        channel = there.open("nobody")
        channel.queue_declare(compute_queue(VICTIM), durable=True)
        channel.queue_bind(compute_queue(VICTIM), "asks", compute_queue(VICTIM))
        yield there
        for connection in there.connections.values():
            connection.close()
    for account in ACCOUNTS.values():
        subprocess.run([*shlex.split(control), "-q", "delete_user", account], check=True)


def refused(act: Callable[[], object]) -> bool:
    try:
        act()
    except pika.exceptions.ChannelClosedByBroker as error:
        return error.reply_code in (403, 405, 406)
    return False


def message(task: str, body: dict[str, Any], **properties: Any) -> dict[str, Any]:
    """Return what publishes a task message, with headers beside `task` and `id` as given."""
    headers = {"task": task, "id": str(uuid.uuid4()), **properties.pop("headers", {})}
    kept = pika.BasicProperties("application/json", headers=headers, **properties)
    return {"body": json.dumps([[], body, {}]), "properties": kept}


@pytest.mark.parametrize("who", ACCOUNTS)
def test_a_stolen_account_writes_to_one_exchange(stolen: Stolen, who: str) -> None:
    for exchange in EXCHANGES:
        for key in (*QUEUES, "#", ""):
            if exchange != MAY_WRITE[who]:
                channel = stolen.open(who)
                assert refused(lambda c=channel, e=exchange, k=key: c.basic_publish(e, k, b"{}"))


@pytest.mark.parametrize("who", ACCOUNTS)
def test_further_keys_of_a_message_lead_nowhere_else(stolen: Stolen, who: str) -> None:
    channel, exchange = stolen.open(who), MAY_WRITE[who]
    mark = f"cc-{uuid.uuid4()}"
    for header in ("CC", "BCC"):
        sent = message("compute.destroy", {"mark": mark}, headers={header: QUEUES})
        channel.basic_publish(exchange, exchange, **sent, mandatory=True)
    stolen.conductor.expect_many(2, what="dead", queue=exchange, body=json.dumps({"mark": mark}))
    dead = stolen.conductor.told(what="dead", body=json.dumps({"mark": mark}))
    assert {row["queue"] for row in dead} == {exchange}
    assert stolen.open("nobody").basic_get(compute_queue(VICTIM)) == (None, None, None)


@pytest.mark.parametrize("who", ACCOUNTS)
def test_a_stolen_account_reads_and_changes_no_queue_of_others(stolen: Stolen, who: str) -> None:
    acts: list[Callable[[BlockingChannel, str], object]] = [
        lambda channel, queue: channel.basic_get(queue),
        lambda channel, queue: channel.basic_consume(queue, lambda *_: None),
        lambda channel, queue: channel.queue_purge(queue),
        lambda channel, queue: channel.queue_delete(queue),
        lambda channel, queue: channel.queue_bind(queue, "notifications", "#"),
        lambda channel, queue: channel.queue_unbind(queue, "asks", queue),
    ]
    for queue in QUEUES:
        for act in acts:
            channel = stolen.open(who)
            assert refused(lambda c=channel, q=queue, a=act: a(c, q))


@pytest.mark.parametrize("who", ACCOUNTS)
def test_a_stolen_account_makes_no_way_to_others(stolen: Stolen, who: str) -> None:
    own = {"host": compute_queue(HOST), "sender": f"{ACCOUNTS['sender']}.mine"}[who]
    to_others = {"x-dead-letter-exchange": "asks", "x-dead-letter-routing-key": "scheduler"}
    acts: list[Callable[[BlockingChannel], object]] = [
        lambda channel: channel.queue_declare("compute_mine"),
        lambda channel: channel.exchange_declare("mine", "topic"),
        lambda channel: channel.exchange_delete("asks"),
        lambda channel: channel.exchange_bind(MAY_WRITE[who], "asks", "#"),
        lambda channel: channel.exchange_bind("asks", MAY_WRITE[who], "#"),
        lambda channel: channel.queue_declare(own, arguments=to_others),
        *(
            lambda channel, exchange=exchange: channel.queue_bind(own, exchange, "#")
            for exchange in ("conductor", "reports", "asks", "notifications", "celeryev")
        ),
    ]
    for act in acts:
        channel = stolen.open(who)
        assert refused(lambda c=channel, a=act: a(c))


@pytest.mark.parametrize("who", ACCOUNTS)
def test_no_account_sends_in_the_name_of_another(stolen: Stolen, who: str) -> None:
    for other in ("guest", ACCOUNTS["sender" if who == "host" else "host"]):
        sent = message(HEARTBEAT, {"host": HOST, "boot_id": "b"}, user_id=other)
        channel, exchange = stolen.open(who), MAY_WRITE[who]
        assert refused(lambda c=channel, e=exchange, s=sent: c.basic_publish(e, e, **s))


@pytest.mark.parametrize("task", sorted(KINDS["reports"]))
def test_a_host_reports_of_itself_and_of_nobody_else(stolen: Stolen, task: str) -> None:
    field = "sender" if task in (REPLY, PROGRESS, REFUSED) else "host"
    channel, account = stolen.open("host"), ACCOUNTS["host"]
    before = len(stolen.conductor.told(what="dead", task=task))
    forged = [(name, account) for name in (VICTIM, "scheduler", "/conductors", f"x{HOST}")]
    for name, signed in (*forged, (HOST, None)):
        body = {**ALL_EXAMPLES[task], field: name}
        channel.basic_publish("reports", "reports", **message(task, body, user_id=signed))
    dead = stolen.conductor.expect_many(before + 5, what="dead", task=task)[before:]
    assert {row["reason"].partition(":")[0] for row in dead} == {"account_refused"}
    body = {**ALL_EXAMPLES[task], field: HOST}
    channel.basic_publish("reports", "reports", **message(task, body, user_id=account))
    what = {
        REGISTRATION: "registration",
        INVENTORY_REPORT: "inventory_report",
        REFUSED: "refusal",
    }
    stolen.conductor.expect(what=what.get(task, task.removeprefix("reports.")), **{field: HOST})
    assert stolen.conductor.told(**{field: VICTIM}) == []


@pytest.mark.parametrize("task", [*REQUESTS, "celery.group", "celery.map", "celery.chord"])
def test_no_request_comes_as_a_report(stolen: Stolen, task: str) -> None:
    sent = message(task, ALL_EXAMPLES.get(task, {}), user_id=ACCOUNTS["host"])
    stolen.open("host").basic_publish("reports", "reports", **sent)
    dead = stolen.conductor.expect(what="dead", queue="reports", task=task)
    assert "is not known on this queue" in dead["reason"]
    assert stolen.conductor.told(what="request", task=task) == []


def flood(stolen: Stolen, count: int, sent: dict[str, Any]) -> None:
    """Send a message many times over a connection of its own, without waiting for confirms."""
    connection = pika.BlockingConnection(pika.URLParameters(stolen.urls["host"]))
    channel = connection.channel()
    for _ in range(count):
        channel.basic_publish("reports", "reports", **sent)
    connection.close()


def of_the_host(**more: Any) -> dict[str, Any]:
    body = {**ALL_EXAMPLES[HEARTBEAT], "host": HOST, **more}
    return message(HEARTBEAT, body, user_id=ACCOUNTS["host"])


LARGE = {"boot_id": "b" * 4_000_000}


@pytest.mark.parametrize(
    ("count", "sent"),
    [
        (5_000, of_the_host()),
        (5_000, of_the_host(host=VICTIM)),
        (3_000, message("conductor.stop", {}, user_id=ACCOUNTS["host"])),
        (3_000, message(REPLY, {"sender": VICTIM}, user_id=ACCOUNTS["host"])),
        (30, of_the_host(**LARGE)),
    ],
    ids=["heartbeats", "of another host", "requests", "replies of another host", "4 MB"],
)
def test_a_flood_from_one_account_costs_next_to_nothing_and_holds_nobody_up(
    stolen: Stolen, count: int, sent: dict[str, Any]
) -> None:
    before = len(stolen.conductor.told())
    flood(stolen, count, sent)
    other = f"other-{uuid.uuid4().hex[:8]}"
    control_plane = stolen.open("nobody")
    body = {**ALL_EXAMPLES[HEARTBEAT], "host": other}
    control_plane.basic_publish("reports", "reports", **message(HEARTBEAT, body, user_id="guest"))
    stolen.conductor.expect(what="heartbeat", host=other)
    # A second of work is what a flood may cost; what it is let through in a minute is little more.
    assert len(stolen.conductor.told()) - before < 1_000


def test_a_sender_sends_requests_and_reads_its_answers(stolen: Stolen) -> None:
    channel = stolen.open("sender")
    mine = channel.queue_declare("", exclusive=True).method.queue
    sent = message("conductor.build_instances", build_body("one"), reply_to=mine)
    channel.basic_publish("conductor", "conductor", **sent, mandatory=True)
    id_ = sent["properties"].headers["id"]
    assert stolen.conductor.expect(what="request", id=id_)["reply_to"] == mine
    stolen.open("nobody").basic_publish("", mine, b"told")
    _, _, body = next(channel.consume(mine, inactivity_timeout=10))
    assert body == b"told"


@pytest.mark.parametrize("who", ACCOUNTS)
def test_a_stolen_account_opens_no_other_vhost(stolen: Stolen, who: str) -> None:
    elsewhere = stolen.urls[who].rpartition("/")[0] + "/%2F"
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.URLParameters(elsewhere))
