"""Other services ask by Celery or plain AMQP, follow what they asked, and are told how it ended."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pika
import pytest
from celery import Celery
from celery.result import AsyncResult
from pika.exceptions import ChannelClosedByBroker

from conductor.store import DeadLetter
from models.lifecycle import InstanceState, OperationState
from tests.acceptance.fleet import Fleet
from tests.acceptance.sending import SHARED, build_body, instance_of, task_body
from tests.environment.variables import CHECKOUT
from tests.limits import limit_s

EXAMPLES = CHECKOUT / "examples"
BUILD = "conductor.build_instances"
RUNNING = {"ACCEPTED", "SCHEDULING", "CLAIMED", "DISPATCHED", "RUNNING"}


def run_example(fleet: Fleet, name: str, folder: Path) -> str:
    """Run a script as somebody else would: elsewhere, with nothing but two addresses."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith("CONDUCTOR_")}
    done = subprocess.run(
        [sys.executable, "-P", str(EXAMPLES / name)],
        cwd=folder,
        env={
            **plain,
            "BROKER_URL": fleet.services.broker_url,
            "RESULT_URL": fleet.services.result_url,
        },
        capture_output=True,
        text=True,
        timeout=limit_s(90),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def followed(fleet: Fleet, id_: str) -> AsyncResult[Any]:
    """Return the result as a service that shares nothing with the sender sees it."""
    elsewhere = Celery(broker="amqp://", backend=fleet.services.result_url, set_as_current=False)
    return elsewhere.AsyncResult(id_)


def ask(fleet: Fleet, body: dict[str, Any], id_: str, reply_to: str) -> None:
    headers = {"task": BUILD, "id": id_}
    fleet.sender.publish(task_body(body), headers, reply_to=reply_to)


def told(fleet: Fleet, mailbox: str, count: int) -> dict[str, dict[str, Any]]:
    """Return exactly `count` answers by their type; there is no other."""
    found = {}
    for _ in range(count):
        answer = fleet.sender.read(mailbox, timeout_s=30.0)
        assert answer is not None, f"only {found} was told"
        properties, body = answer
        assert properties.correlation_id == body["operation_id"]
        assert properties.content_type == "application/json"
        found[properties.type] = body
    assert fleet.sender.read(mailbox, timeout_s=1.0) is None
    return found


def dead_letters_of(fleet: Fleet, id_: str) -> list[DeadLetter]:
    with fleet.store.read() as uow:
        return [
            dead_letter
            for dead_letter in uow.dead_letters.where()
            if dead_letter.headers.get("id") == id_
        ]


def test_ten_lines_of_celery_build_an_instance_and_wait_for_it(
    fleet: Fleet, tmp_path: Path
) -> None:
    id_, _, result = run_example(fleet, "send_celery.py", tmp_path).partition(" ")
    assert ast.literal_eval(result) == {"instances": [instance_of(id_)]}
    assert fleet.instance(instance_of(id_)).state is InstanceState.ACTIVE
    assert fleet.guests()[instance_of(id_)] == fleet.instance(instance_of(id_)).host


def test_the_route_keeps_celery_from_declaring_a_queue(fleet: Fleet, tmp_path: Path) -> None:
    with pika.BlockingConnection(pika.URLParameters(fleet.services.broker_url)) as connection:
        connection.channel().queue_delete("celery")  # left by senders that name an exchange only
        run_example(fleet, "send_celery.py", tmp_path)
        channel = connection.channel()
        with pytest.raises(ChannelClosedByBroker, match="no queue 'celery'"):
            channel.queue_declare("celery", passive=True)


def test_ten_lines_of_amqp_build_an_instance_and_read_the_answer(
    fleet: Fleet, tmp_path: Path
) -> None:
    answer = json.loads(run_example(fleet, "send_pika.py", tmp_path))
    id_ = answer.pop("operation_id")
    assert answer == {
        "version": 1,
        "kind": "build_instances",
        "state": "SUCCEEDED",
        "result": {"instances": [instance_of(id_)]},
    }
    assert fleet.instance(instance_of(id_)).state is InstanceState.ACTIVE


def test_the_result_shows_the_operation_while_it_runs_and_its_end(fleet: Fleet) -> None:
    id_ = str(uuid.uuid4())
    result = followed(fleet, id_)
    assert result.state == "PENDING"
    fleet.members["compute-alpha"].freeze()
    try:
        fleet.sender.send("build_instances", build_body(SHARED, host="alpha"), id_)
        fleet.until(lambda: result.state in RUNNING - {"ACCEPTED"}, "the state of the operation")
        assert not result.ready()
    finally:
        fleet.members["compute-alpha"].thaw()
    assert result.get(timeout=limit_s(60)) == {"instances": [instance_of(id_)]}
    assert result.state == "SUCCESS"


@pytest.mark.parametrize(
    ("flavor", "kind", "text"),
    [
        ("of-nobody", "Rejected", "flavor_unknown: instance.flavor is of-nobody: no such flavor"),
        ({"vcpus": 4096, "memory_mb": 64}, "NoValidHost", "no_valid_host: "),
    ],
)
def test_the_result_of_a_failure_is_an_error_that_a_person_can_read(
    fleet: Fleet, flavor: Any, kind: str, text: str
) -> None:
    id_ = fleet.sender.build(flavor)
    result = followed(fleet, id_)
    with pytest.raises(Exception, match=text) as caught:
        result.get(timeout=limit_s(60))
    assert type(caught.value).__name__ == kind
    assert "Traceback" not in str(caught.value)
    assert result.state == "FAILURE"


def test_the_same_id_twice_is_one_operation_and_one_answer(fleet: Fleet) -> None:
    mailbox, id_ = fleet.sender.mailbox(), str(uuid.uuid4())
    for _ in range(2):
        ask(fleet, build_body(SHARED), id_, mailbox)
    answer = told(fleet, mailbox, 1)["conductor.operation_ended"]
    assert answer["state"] == "SUCCEEDED"
    assert fleet.effects(instance_of(id_), "spawn") == 1
    ask(fleet, build_body(SHARED), id_, mailbox)
    assert fleet.sender.read(mailbox, timeout_s=1.0) is None
    assert not dead_letters_of(fleet, id_)


def test_another_request_under_the_same_id_is_told_and_kept_and_changes_nothing(
    fleet: Fleet,
) -> None:
    mine, other, id_ = fleet.sender.mailbox(), fleet.sender.mailbox(), str(uuid.uuid4())
    ask(fleet, build_body(SHARED), id_, mine)
    assert told(fleet, mine, 1)["conductor.operation_ended"]["state"] == "SUCCEEDED"
    ask(fleet, build_body(SHARED, count=3), id_, other)
    refused = told(fleet, other, 1)["conductor.request_refused"]
    assert (refused["state"], refused["error"]["code"]) == ("REJECTED", "duplicate_id")
    [outgoing] = dead_letters_of(fleet, id_)
    assert outgoing.reason.startswith("duplicate_id: ")
    assert followed(fleet, id_).get(timeout=limit_s(10)) == {"instances": [instance_of(id_)]}
    with fleet.store.read() as uow:
        assert uow.instances.get(instance_of(id_, 1)) is None


def test_a_failure_is_told_to_the_queue_of_its_sender(fleet: Fleet) -> None:
    mailbox, id_ = fleet.sender.mailbox(), str(uuid.uuid4())
    ask(fleet, build_body({"vcpus": 4096, "memory_mb": 64}), id_, mailbox)
    answer = told(fleet, mailbox, 1)["conductor.operation_ended"]
    assert (answer["state"], answer["error"]["kind"]) == ("FAILED", "NoValidHost")


def test_a_request_of_a_newer_version_fails_at_once_and_is_kept(fleet: Fleet) -> None:
    mailbox, id_ = fleet.sender.mailbox(), str(uuid.uuid4())
    newer = {**build_body(SHARED), "version": 2, "field_of_tomorrow": 1}
    ask(fleet, newer, id_, mailbox)
    answer = told(fleet, mailbox, 1)["conductor.operation_ended"]
    assert answer["error"]["code"] == "version_unsupported"
    assert fleet.ended(id_).state is OperationState.FAILED
    [outgoing] = dead_letters_of(fleet, id_)
    assert outgoing.reason.startswith("version_unsupported: version is 2")
    assert json.loads(outgoing.body) == newer


def test_a_caller_that_has_gone_harms_nobody(fleet: Fleet) -> None:
    id_ = str(uuid.uuid4())
    ask(fleet, build_body(SHARED), id_, "a-queue-that-nobody-has")
    assert fleet.ended(id_).state is OperationState.SUCCEEDED
    fleet.until(lambda: fleet.outbox() == 0, "the answer to leave")
