"""What reaches the conductor, what does not, and what is said of it."""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from celery import Celery
from kombu import Connection

from tasks.routing import declare_topology
from tests.services.processes import Process, build_body, running

TASK = "conductor.build_instances"
BODY = build_body("one")


@pytest.fixture(scope="module")
def conductor(broker_url: str) -> Iterator[Process]:
    with running("conductor", broker_url) as process:
        yield process


class Sender:
    """Publishes anything, with nothing of ours."""

    def __init__(self, url: str) -> None:
        self._channel = pika.BlockingConnection(pika.URLParameters(url)).channel()

    def send(self, body: bytes, headers: dict[str, Any] | None, **properties: Any) -> None:
        queue = properties.pop("queue", "conductor")
        exchange = "reports" if queue == "reports" else "conductor"
        known = {"content_type": "application/json", "content_encoding": "utf-8", **properties}
        self._channel.basic_publish(
            exchange, queue, body, pika.BasicProperties(headers=headers, **known)
        )


@pytest.fixture(scope="module")
def sender(conductor: Process, broker_url: str) -> Sender:
    return Sender(broker_url)


def task_body(**keywords: Any) -> bytes:
    return json.dumps([[], keywords, {}]).encode()


def test_ten_lines_of_plain_celery_send_a_request(conductor: Process, broker_url: str) -> None:
    app = Celery(broker=broker_url)
    request_id = str(uuid.uuid4())
    app.send_task(
        TASK, kwargs=BODY, task_id=request_id, exchange="conductor", routing_key="conductor"
    )
    assert conductor.expect(what="request", id=request_id)["body"] == BODY


def test_ten_lines_of_plain_amqp_send_the_same_request(conductor: Process, broker_url: str) -> None:
    request_id = str(uuid.uuid4())
    connection = pika.BlockingConnection(pika.URLParameters(broker_url))
    connection.channel().basic_publish(
        exchange="conductor",
        routing_key="conductor",
        body=json.dumps([[], BODY, {}]).encode(),
        properties=pika.BasicProperties(
            content_type="application/json", headers={"task": TASK, "id": request_id}
        ),
    )
    connection.close()
    told = conductor.expect(what="request", id=request_id)
    assert (told["task"], told["body"], told["reply_to"]) == (TASK, BODY, None)


def test_the_reply_queue_of_a_caller_is_passed_on(conductor: Process, sender: Sender) -> None:
    request_id = str(uuid.uuid4())
    sender.send(task_body(**BODY), {"task": TASK, "id": request_id}, reply_to="mine")
    assert conductor.expect(what="request", id=request_id)["reply_to"] == "mine"


@pytest.mark.parametrize(
    "ours", ["conductor", "scheduler", "reports", "dead_letters", "compute_h1", "compute_other"]
)
def test_no_answer_of_ours_is_sent_into_a_queue_of_ours(
    conductor: Process, sender: Sender, ours: str
) -> None:
    request_id = str(uuid.uuid4())
    sender.send(task_body(**BODY), {"task": TASK, "id": request_id}, reply_to=ours)
    told = conductor.expect(what="refused", id=request_id)
    assert told["reply_to"] is None
    assert told["reason"] == f'reply_to is "{ours}": should be a queue of the sender\'s own'


def test_a_request_sent_twice_arrives_twice_under_one_id(
    conductor: Process, sender: Sender
) -> None:
    request_id = str(uuid.uuid4())
    for _ in range(2):
        sender.send(task_body(**BODY), {"task": TASK, "id": request_id})
    sender.send(task_body(**BODY), {"task": TASK, "id": (last := str(uuid.uuid4()))})
    conductor.expect(what="request", id=last)
    assert len(conductor.told(what="request", id=request_id)) == 2


def test_argument_names_that_python_would_trip_over_arrive(
    conductor: Process, sender: Sender
) -> None:
    request_id = str(uuid.uuid4())
    odd = {"self": 1, "task": 2, "args": [3], "kwargs": {"a": 4}, "class": None, "": 5}
    sender.send(task_body(**odd), {"task": TASK, "id": request_id})
    assert conductor.expect(what="request", id=request_id)["body"] == odd


ID = "00000000-0000-4000-8000-000000000000"
GOOD = {"task": TASK, "id": ID}
MALFORMED: dict[str, tuple[bytes, dict[str, Any] | None, dict[str, str], str]] = {
    "a body that is no JSON": (b"{nope", GOOD, {}, "not JSON"),
    "a body that is no text": (b"\xff\xfe\x00", GOOD, {}, "not JSON"),
    "a body nested without end": (b"[" * 100_000, GOOD, {}, "not JSON"),
    "a list of one": (b"[1]", GOOD, {}, "no list of arguments"),
    "null": (b"null", GOOD, {}, "no list of arguments"),
    "nothing": (b"", GOOD, {}, "no list of arguments"),
    "positional arguments": (b"[[1], {}, {}]", GOOD, {}, "positional"),
    "keyword arguments that are a list": (b"[[], [], {}]", GOOD, {}, "no JSON object"),
    "a chain": (b'[[], {}, {"chain": [{"task": "x"}]}]', GOOD, {}, "another task"),
    "callbacks that are a number": (b"[[], {}, 7]", GOOD, {}, "callbacks"),
    "a future type of Celery's": (
        b'[[], {"a": {"__type__": "tomorrow", "__value__": "x"}}, {}]',
        GOOD,
        {},
        "not JSON",
    ),
    "no headers": (task_body(), None, {}, "header task is missing"),
    "no task": (task_body(), {"id": ID}, {}, "header task is missing"),
    "no id": (task_body(), {"task": TASK}, {}, "header id is null"),
    "an id that is no UUID": (task_body(), {"task": TASK, "id": "me"}, {}, 'header id is "me"'),
    "an id that is a number": (task_body(), {"task": TASK, "id": 7}, {}, "header id is 7"),
    "a task that is a table": (task_body(), {"task": {}, "id": ID}, {}, "task is missing"),
    "a task nobody knows": (
        task_body(),
        {"task": "conductor.explode", "id": ID},
        {},
        '"conductor.explode" is not known',
    ),
    "a task of another queue": (
        task_body(),
        {"task": "scheduler.select_hosts", "id": ID},
        {},
        "not known on this queue",
    ),
    "a pickle": (
        b"\x80\x04N.",
        GOOD,
        {"content_type": "application/x-python-serialize", "content_encoding": "binary"},
        "content type",
    ),
    "a strange encoding": (task_body(), GOOD, {"content_encoding": "gzip"}, "content encoding"),
    "a compression nobody knows": (
        task_body(),
        {**GOOD, "compression": "nonsense"},
        {},
        "compressed",
    ),
    "a body that unpacks to much more": (
        zlib.compress(bytes(64 * 1024 * 1024)),
        {**GOOD, "compression": "application/x-gzip"},
        {},
        "compressed",
    ),
    "more values than memory is for": (
        b'[[], {"a": [' + b"[]," * 300_000 + b"[]]}, {}]",
        GOOD,
        {},
        "more than 200000 values",
    ),
    "a body that is too large": (b" " * (5 * 1024 * 1024), GOOD, {}, "the body has 5242880 bytes"),
    "a body nested deep": (
        b'[[], {"a": ' + b"[" * 500 + b"]" * 500 + b"}, {}]",
        GOOD,
        {},
        "nested deeper than 64 levels",
    ),
    "a header x-death that is no list": (task_body(), {**GOOD, "x-death": "me"}, {}, "x-death"),
    "a parent with a NUL": (task_body(), {**GOOD, "parent_id": "a\0b"}, {}, "parent_id"),
    "a date made by kombu": (
        b'[[], {"a": {"__type__": "datetime", "__value__": "2020-01-01T00:00:00"}}, {}]',
        GOOD,
        {},
        "holds a datetime",
    ),
    "a reply queue with a line end": (task_body(), GOOD, {"reply_to": "a\nb"}, "reply_to"),
    "an eta that is no time": (task_body(), {**GOOD, "eta": "tomorrow"}, {}, "ISO 8601"),
    "an eta in the future": (
        task_body(),
        {**GOOD, "eta": "2999-01-01T00:00:00+00:00"},
        {},
        "send it when it is due",
    ),
    "a request that expired": (
        task_body(),
        {**GOOD, "expires": "2001-01-01T00:00:00+00:00"},
        {},
        "expired",
    ),
    "a parent that is a list": (task_body(), {**GOOD, "parent_id": [1]}, {}, "parent_id"),
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_messages_are_dead_letters_with_a_reason(
    conductor: Process, sender: Sender, kind: str
) -> None:
    body, headers, properties, reason = MALFORMED[kind]
    before = len(conductor.told(what="dead"))
    sender.send(body, headers, **properties)
    dead = conductor.expect_many(before + 1, what="dead")[before]
    assert reason in dead["reason"]
    assert dead["queue"] == "conductor"
    assert conductor.alive


@pytest.mark.parametrize(
    ("headers", "body", "words"),
    [
        ({"eta": "2999-01-01T00:00:00+00:00"}, task_body(**BODY), "asks to wait"),
        ({"expires": "2001-01-01T00:00:00+00:00"}, task_body(**BODY), "expired"),
        ({}, b'[[], {}, {"chain": [{"task": "x"}]}]', "another task"),
        ({}, b"[[1], {}, {}]", "positional"),
        ({}, b"no json", "not JSON"),
        ({"compression": "gzip"}, b"x", "compressed"),
    ],
)
def test_whoever_sent_a_request_that_cannot_be_taken_hears_why(
    conductor: Process, sender: Sender, headers: dict[str, Any], body: bytes, words: str
) -> None:
    request_id = str(uuid.uuid4())
    sender.send(body, {"task": TASK, "id": request_id, **headers}, reply_to="mine")
    told = conductor.expect(what="refused", id=request_id)
    assert words in told["reason"]
    assert told["reply_to"] == "mine"


def test_the_worker_lives_on_after_all_of_them(conductor: Process, sender: Sender) -> None:
    request_id = str(uuid.uuid4())
    sender.send(task_body(**BODY), {"task": TASK, "id": request_id})
    conductor.expect(what="request", id=request_id)


def test_a_report_that_says_nothing_is_a_dead_letter_naming_the_field(
    conductor: Process, sender: Sender
) -> None:
    report_id = str(uuid.uuid4())
    headers = {"task": "reports.reply", "id": report_id}
    body = task_body(sender="h1", outcome="done")
    sender.send(body, headers, queue="reports", user_id="guest")
    dead = conductor.expect(what="dead", task="reports.reply")
    assert dead["reason"] == "field_missing: token is missing"
    assert json.loads(dead["body"]) == {"sender": "h1", "outcome": "done"}


@pytest.mark.parametrize("account", [{}, {"user_id": "guest"}], ids=["no account", "ours"])
def test_a_report_of_no_account_is_a_dead_letter(
    conductor: Process, sender: Sender, account: dict[str, str]
) -> None:
    host = f"h-{uuid.uuid4()}"
    headers = {"task": "reports.heartbeat", "id": str(uuid.uuid4())}
    body = {"host": host, "boot_id": "b", "sequence": 1}
    sender.send(task_body(**body), headers, queue="reports", **account)
    if account:
        conductor.expect(what="heartbeat", host=host)
        return
    dead = conductor.expect(what="dead", task="reports.heartbeat", body=json.dumps(body))
    assert dead["reason"].startswith("account_refused: the property user_id is missing")


QUEUE_TASKS = {
    "reports": (TASK, "conductor.define_entry", "celery.group", "celery.chord", "compute.spawn"),
    "conductor": ("reports.heartbeat", "celery.backend_cleanup", "scheduler.select_hosts"),
}


@pytest.mark.parametrize(
    ("queue", "task"), [(queue, task) for queue, tasks in QUEUE_TASKS.items() for task in tasks]
)
def test_each_queue_takes_its_own_tasks_only(
    conductor: Process, sender: Sender, queue: str, task: str
) -> None:
    message_id = str(uuid.uuid4())
    headers = {"task": task, "id": message_id}
    sender.send(task_body(**BODY), headers, queue=queue, user_id="guest")
    dead = conductor.expect(what="dead", queue=queue, task=task)
    assert "is not known on this queue" in dead["reason"]
    assert conductor.told(what="request", id=message_id) == []


def test_a_handler_with_a_defect_leaves_its_message_and_its_reason(
    conductor: Process, sender: Sender
) -> None:
    request_id = str(uuid.uuid4())
    sender.send(task_body(**build_body("broken")), {"task": TASK, "id": request_id})
    reason = "its handler failed (ZeroDivisionError): the log of the process has the error"
    dead = conductor.expect(what="dead", reason=reason)
    assert dead["headers"]["id"] == request_id


def test_any_bytes_in_the_dead_letters_are_kept_as_text(
    conductor: Process, broker_url: str
) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        connection.channel().basic_publish("dead_letters", "", b"\x00\xff\xd8")
    dead = conductor.expect(what="dead", queue="")
    assert dead["body"] == "\ufffd\\xff\\xd8"
    assert dead["reason"] == "it was sent to the dead letters directly"


def test_what_was_returned_too_often_says_so(conductor: Process, broker_url: str) -> None:
    queue = "compute_poisoned"
    with Connection(broker_url) as declaring:
        declare_topology(declaring, ["poisoned"])
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        channel = connection.channel()
        channel.basic_publish("asks", queue, b"poison")
        for method, _, _ in channel.consume(queue, inactivity_timeout=0.5):
            if method is None:
                break
            channel.basic_reject(method.delivery_tag, requeue=True)
    dead = conductor.expect(what="dead", queue=queue)
    assert dead["reason"] == "given up: every worker that took it died or gave it back"
