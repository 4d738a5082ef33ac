"""Whatever is sent, the answer is a clear no: never a dead process, never half an instance."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from models.lifecycle import OperationState
from tests.acceptance.fleet import Fleet
from tests.acceptance.sending import CONTEXT, build_body, child_of, instance_of, task_body

BUILD = "build_instances"
TASK = f"conductor.{BUILD}"
NOBODY = "00000000-0000-4000-8000-000000000000"
GOOD = build_body()

REFUSED: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "an unknown flavor": (BUILD, build_body("m9"), "flavor_unknown", "instance.flavor"),
    "an unknown image": (BUILD, build_body(image="beos"), "image_unknown", "instance.image"),
    "an unknown host": (BUILD, build_body(host="omega"), "host_unknown", "instance.host"),
    "an unknown zone": (
        BUILD,
        build_body(availability_zone="mars"),
        "zone_unknown",
        "instance.availability_zone",
    ),
    "an unknown group": (BUILD, build_body(group="g"), "server_group_unknown", "instance.group"),
    "an unknown field": (BUILD, build_body(colour="red"), "field_unknown", "instance.colour"),
    "an unknown argument": (BUILD, {**GOOD, "colour": "red"}, "field_unknown", "colour"),
    "a missing argument": (BUILD, {"context": CONTEXT}, "field_missing", "instance"),
    "a wrong type": (BUILD, {**GOOD, "count": "3"}, "field_invalid", "count"),
    "a count of nothing": (BUILD, {**GOOD, "count": 0}, "field_invalid", "count"),
    "a count of a thousand million": (BUILD, {**GOOD, "count": 10**9}, "field_invalid", "count"),
    "no context": (BUILD, {"instance": GOOD["instance"]}, "field_missing", "context"),
    "the future": (BUILD, {**GOOD, "version": 99}, "version_unsupported", "version"),
    "a CPU policy that is none": (
        BUILD,
        build_body({"vcpus": 1, "memory_mb": 64, "extra_specs": {"hw:cpu_policy": "mine"}}),
        "cpu_policy_invalid",
        "hw:cpu_policy",
    ),
    "an instance that is no id": (
        "delete_instance",
        {"context": CONTEXT, "instance_id": "vm-1"},
        "field_invalid",
        "instance_id",
    ),
    "a start of nobody": (
        "start_instance",
        {"context": CONTEXT, "instance_id": NOBODY},
        "instance_unknown",
        "instance_id",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_request_that_is_wrong_fails_with_code_and_key(fleet: Fleet, what: str) -> None:
    task, body, code, key = REFUSED[what]
    id_ = fleet.sender.send(task, body)
    record = fleet.ended(id_)
    assert record.state is OperationState.FAILED
    assert record.error is not None
    assert record.error["kind"] == "Rejected"
    assert (record.error["code"], record.error["key"]) == (code, key)
    assert key.rpartition(".")[2] in record.error["message"]
    with fleet.store.read() as uow:
        assert uow.instances.get(instance_of(id_)) is None
        assert uow.operations.get(child_of(id_)) is None
        assert uow.operations.where(parent_id=id_) == []


def test_an_operator_sees_why_a_request_was_refused(fleet: Fleet) -> None:
    id_ = fleet.sender.build("m9")
    fleet.ended(id_)
    shown = fleet.command("operations", "show", id_)
    assert (shown["state"], shown["kind"]) == ("FAILED", BUILD)
    assert shown["error"]["code"] == "flavor_unknown"
    assert shown["error"]["message"] == "instance.flavor is m9: no such flavor"


UNREADABLE: dict[str, tuple[bytes, dict[str, Any], str]] = {
    "a body that is no JSON": (b"{nope", {"task": TASK}, "not JSON"),
    "a body that is no task": (b'"build"', {"task": TASK}, "no list of arguments"),
    "an unknown task": (task_body({}), {"task": "conductor.make_coffee"}, "not known"),
    "no task at all": (task_body({}), {}, "header task is missing"),
    "an id that is none": (task_body(GOOD), {"task": TASK, "id": "one"}, "should be a UUID"),
    "positional arguments": (b"[[1], {}, {}]", {"task": TASK}, "positional arguments"),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_what_cannot_be_read_is_kept_with_its_reason(fleet: Fleet, what: str) -> None:
    body, headers, reason = UNREADABLE[what]
    id_ = str(uuid.uuid4())
    mark = {"id": id_, **headers, "mark": id_}
    fleet.sender.publish(body, mark)
    dead_letter = fleet.until(
        lambda: [kept for kept in fleet.dead_letters() if kept.headers.get("mark") == id_],
        "the dead letter",
    )[0]
    assert dead_letter.queue == "conductor"
    assert reason in dead_letter.reason
    if headers == {"task": TASK}:  # a request, though a bad one: its sender waits for its end
        record = fleet.ended(id_)
        assert record.state is OperationState.FAILED
        assert record.error is not None
        assert record.error["code"] == "message_refused"
    else:
        assert fleet.operation(id_) is None


def test_a_known_id_with_another_body_leaves_the_first_and_is_told_to_its_sender(
    fleet: Fleet,
) -> None:
    first = fleet.sender.build()
    assert fleet.ended(first).state is OperationState.SUCCEEDED
    before = fleet.operation(first)
    mailbox = fleet.sender.mailbox()
    other = task_body(build_body(count=2))
    fleet.sender.publish(other, {"task": TASK, "id": first}, reply_to=mailbox)
    answer = fleet.sender.read(mailbox)
    assert answer is not None
    properties, body = answer
    assert properties.type == "conductor.request_refused"
    assert (body["operation_id"], body["state"]) == (first, "REJECTED")
    assert body["error"]["code"] == "duplicate_id"
    assert fleet.operation(first) == before
    kept = [outgoing for outgoing in fleet.dead_letters() if outgoing.headers.get("id") == first]
    assert [outgoing.reason.partition(":")[0] for outgoing in kept] == ["duplicate_id"]


def test_the_same_request_many_times_is_one_operation(fleet: Fleet) -> None:
    id_ = str(uuid.uuid4())
    for _ in range(10):
        fleet.sender.send(BUILD, GOOD, id_)
    assert fleet.ended(id_).state is OperationState.SUCCEEDED
    assert fleet.effects(instance_of(id_), "spawn") == 1
    with fleet.store.read() as uow:
        assert uow.operations.count(parent_id=id_) == 1


def test_who_asks_to_be_answered_is_told_how_it_ended(fleet: Fleet) -> None:
    mailbox = fleet.sender.mailbox()
    for body, state, code in ((GOOD, "SUCCEEDED", None), (build_body("m9"), "FAILED", "flavor")):
        id_ = str(uuid.uuid4())
        headers = {"task": TASK, "id": id_}
        fleet.sender.publish(task_body(body), headers, reply_to=mailbox)
        answer = fleet.sender.read(mailbox)
        assert answer is not None
        properties, told = answer
        assert properties.type == "conductor.operation_ended"
        assert (told["operation_id"], told["kind"], told["state"]) == (id_, BUILD, state)
        if code is None:
            assert told["result"] == {"instances": [instance_of(id_)]}
        else:
            assert told["error"]["code"] == "flavor_unknown"


def test_a_flood_of_nonsense_kills_nobody_and_delays_nothing_for_long(fleet: Fleet) -> None:
    lives = {name: member.lives for name, member in fleet.members.items()}
    for queue in ("conductor", "scheduler", "reports", "compute_alpha"):
        for body, headers, _ in UNREADABLE.values():
            fleet.sender.publish(body, {"id": str(uuid.uuid4()), **headers}, queue)
        for task in ("scheduler.select_hosts", "reports.reply", "compute.spawn", "compute.nap"):
            for nonsense in ({}, {"token": 7}, {"host": None}):
                headers = {"task": task, "id": str(uuid.uuid4())}
                fleet.sender.publish(task_body(nonsense), headers, queue)
    build = fleet.sender.build()
    assert fleet.ended(build).state is OperationState.SUCCEEDED
    assert all(member.alive for member in fleet.members.values())
    assert lives == {name: member.lives for name, member in fleet.members.items()}
    fleet.until(lambda: fleet.sender.waiting("dead_letters") == 0, "dead letters to be kept")
