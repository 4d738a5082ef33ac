"""What a sender is told, and what is kept of requests that a later release will understand."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from conductor.store import DeadLetter
from models.lifecycle import OperationState
from models.messages.answers import ANSWERS
from models.messages.internal import OutgoingMessage
from models.messages.json_schemas import json_schema
from tests.operations.world import CONTEXT, World

MINE = "answers-of-another-service"
BODY: dict[str, Any] = {
    "context": CONTEXT,
    "instance": {
        "name": "vm",
        "flavor": {"vcpus": 1, "memory_mb": 512},
        "image": {"id": "img"},
    },
}
NEWER = {**BODY, "version": 2, "a_field_of_tomorrow": True}
TASK = "conductor.build_instances"


@pytest.fixture
def world() -> World:
    return World()


def ask(world: World, body: dict[str, Any], id_: str | None = None, task: str = TASK) -> str:
    id_ = id_ or str(uuid.uuid4())
    world.service.handle_request(task, id_, body, MINE)
    world.run_out()
    return id_


def answers(world: World) -> list[OutgoingMessage]:
    """Return all answers so far; each says what its schema allows, under the request's id."""
    found = [outgoing for outgoing in world.delivered if outgoing.queue == MINE]
    for outgoing in found:
        Draft202012Validator(json_schema(ANSWERS[outgoing.task])).validate(dict(outgoing.body))
        assert outgoing.parent_id == outgoing.body["operation_id"]
    return found


def dead_letters(world: World) -> list[DeadLetter]:
    with world.store.read() as uow:
        return uow.dead_letters.where()


def test_success_is_told_once_with_the_result(world: World) -> None:
    id_ = ask(world, BODY)
    [answer] = answers(world)
    assert answer.task == "conductor.operation_ended"
    assert answer.body == {
        "version": 1,
        "operation_id": id_,
        "kind": "build_instances",
        "state": "SUCCEEDED",
        "result": {"instances": [world.instance(id_).id]},
    }


def test_the_same_request_twice_is_one_operation_and_one_answer(world: World) -> None:
    id_ = ask(world, BODY)
    ask(world, BODY, id_)
    assert len(answers(world)) == 1
    assert len(world.guests()) == 1
    assert not dead_letters(world)


def test_failure_is_told_with_kind_code_and_sentence(world: World) -> None:
    instance = {**BODY["instance"], "flavor": {"vcpus": 4096, "memory_mb": 512}}
    ask(world, {**BODY, "instance": instance})
    [answer] = answers(world)
    assert answer.body["state"] == "FAILED"
    assert answer.body["error"]["kind"] == "NoValidHost"


def test_a_request_that_is_wrong_is_told_by_field(world: World) -> None:
    ask(world, {**BODY, "colour": "red"})
    [answer] = answers(world)
    assert answer.body["error"]["code"] == "field_unknown"
    assert answer.body["error"]["key"] == "colour"


def test_another_request_under_the_same_id_is_refused_and_kept(world: World) -> None:
    id_ = ask(world, BODY)
    ask(world, {**BODY, "count": 2}, id_)
    refused = answers(world)[1]
    assert refused.task == "conductor.request_refused"
    assert refused.body["state"] == "REJECTED"
    assert refused.body["error"]["code"] == "duplicate_id"
    [outgoing] = dead_letters(world)
    assert outgoing.reason.startswith("duplicate_id: ")
    assert outgoing.headers == {"id": id_, "reply_to": MINE}
    assert world.ended(id_) is OperationState.SUCCEEDED


def test_a_newer_request_fails_for_its_sender_and_is_kept_for_a_later_release(
    world: World,
) -> None:
    id_ = ask(world, NEWER)
    assert world.ended(id_) is OperationState.FAILED
    [answer] = answers(world)
    assert answer.body["error"]["code"] == "version_unsupported"
    [outgoing] = dead_letters(world)
    reason = f"version is 2: {TASK} is understood up to version 1"
    assert outgoing.reason == f"version_unsupported: {reason}"
    assert (outgoing.task, outgoing.queue, outgoing.headers["id"]) == (TASK, "conductor", id_)
    assert json.loads(outgoing.body) == NEWER


def test_a_newer_request_delivered_again_is_kept_once(world: World) -> None:
    id_ = ask(world, NEWER)
    ask(world, NEWER, id_)
    assert len(dead_letters(world)) == 1
    assert len(answers(world)) == 1


def test_a_newer_request_under_a_known_id_is_refused_like_any_other(world: World) -> None:
    id_ = ask(world, BODY)
    ask(world, NEWER, id_)
    [outgoing] = dead_letters(world)
    assert outgoing.reason.startswith("duplicate_id: ")
    assert answers(world)[1].task == "conductor.request_refused"


def test_a_newer_task_that_we_do_not_know_is_a_failed_operation_too(world: World) -> None:
    id_ = ask(world, BODY, task="conductor.paint_instance")
    assert world.operation(id_).error == {
        "kind": "Rejected",
        "code": "task_unknown",
        "message": "conductor.paint_instance is not a known task name",
        "key": "task",
    }
