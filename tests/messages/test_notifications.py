"""Whoever listens hears of each operation on an instance twice: when it begins, when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from models.messages.internal import OutgoingMessage
from models.messages.json_schemas import json_schema
from models.messages.notifications import NOTICES, topic_key
from tests.operations.world import PINNED, World
from workers.hypervisor.fault_injection import Call, InjectedFault

HEARD = "heard"
HUGE = {"vcpus": 400, "memory_mb": 512}


@pytest.fixture
def world() -> World:
    world = World()
    world.bus.listen(HEARD)
    return world


def heard(world: World) -> list[tuple[str, Mapping[str, Any]]]:
    """Let everything end; return key and body of every notice, each as its schema allows."""
    for _ in range(60):
        while queues := [
            waiting_queue for waiting_queue in world.waiting_queues() if waiting_queue != HEARD
        ]:
            world.deliver(queues[0])
        if not world.living():
            break
        world.pass_time(20.0)
    found: list[tuple[str, Mapping[str, Any]]] = []
    while outgoing := world.bus.take(HEARD):
        Draft202012Validator(json_schema(NOTICES[outgoing.task])).validate(dict(outgoing.body))
        key = topic_key(outgoing)
        assert key is not None
        found.append((key, outgoing.body))
    return found


def keys(world: World) -> list[str]:
    return [key for key, _ in heard(world)]


def test_each_build_tells_its_beginning_and_its_end_and_their_request_tells_nothing(
    world: World,
) -> None:
    operation = world.build(PINNED, count=2)
    notices = heard(world)
    assert sorted(key for key, _ in notices) == [
        *["build_instance.end"] * 2,
        *["build_instance.start"] * 2,
    ]
    begun = notices[0][1]
    instance = world.instance(operation)
    assert begun["instance"] == {"id": instance.id, "name": "vm-1", "state": "building"}
    assert (begun["state"], begun["event"], begun["version"]) == ("ACCEPTED", "start", 1)
    assert (begun["project_id"], begun["user_id"]) == ("demo", "ann")
    assert begun["request_id"] == "req-1"
    ended = {body["operation_id"]: body for key, body in notices if key.endswith("end")}
    body = ended[world.child(operation).id]
    assert body["instance"]["state"] == "active"
    assert body["instance"]["host"] == instance.host
    assert "error" not in body


def test_a_build_that_never_found_a_host_tells_why(world: World) -> None:
    world.build(HUGE)
    (begun, _), (failed, body) = heard(world)
    assert (begun, failed) == ("build_instance.start", "build_instance.error")
    assert (body["state"], body["error"]["code"]) == ("FAILED", "no_valid_host")
    assert body["instance"]["state"] == "error"


def test_a_build_that_is_called_back_has_not_succeeded(world: World) -> None:
    operation = world.build(PINNED)
    world.deliver("conductor")
    world.service.cancel(operation, "nobody wants it")
    assert [body["state"] for _, body in heard(world)] == ["ACCEPTED", "CANCELLED"]


def test_a_delete_ends_with_the_instance_gone_from_its_host(world: World) -> None:
    operation = world.build(PINNED)
    heard(world)
    world.submit("delete_instance", {"instance_id": world.instance(operation).id})
    (_, before), (key, after) = heard(world)
    assert key == "delete_instance.end"
    assert before["instance"]["host"]
    assert (after["instance"]["state"], after["instance"].get("host")) == ("deleted", None)


def test_a_request_that_is_refused_is_no_news_of_the_instance(world: World) -> None:
    operation = world.build(PINNED)
    heard(world)
    world.submit("start_instance", {"instance_id": world.instance(operation).id})
    assert keys(world) == []


def test_an_end_that_comes_again_is_told_once(world: World) -> None:
    world.build(PINNED)
    heard(world)
    for outgoing in list(world.delivered):
        world.hand_over(outgoing)
    assert keys(world) == []


def test_a_replay_begins_and_ends_like_what_it_repeats() -> None:
    refused = ["spawn"]

    def injected_fault(call: Call) -> InjectedFault:
        return InjectedFault(ending="refused" if call.verb in refused else "done")

    world = World(hosts=1, injected_faults=lambda _: injected_fault)
    world.bus.listen(HEARD)
    operation = world.build(PINNED)
    assert keys(world) == ["build_instance.start", "build_instance.error"]
    refused.clear()
    world.submit("replay_operation", {"operation_id": world.child(operation).id})
    assert keys(world) == ["build_instance.start", "build_instance.end"]


def test_nothing_is_kept_of_notices_that_nobody_listens_to() -> None:
    world = World()
    world.build(PINNED)
    world.run_out()
    assert not [name for name in world.bus.depths() if name.startswith("notifications")]
    with world.store.read() as uow:
        assert world.bus.depths().get(HEARD) is None
        assert uow.operations.count(ended_at=None) == 0


def test_an_answer_is_never_taken_for_a_notice_whatever_its_queue_is_called() -> None:
    queue = "notifications.build_instance.end"
    assert topic_key(OutgoingMessage(queue, "conductor.operation_ended", {})) is None
    assert (
        topic_key(OutgoingMessage(queue, "conductor.operation_notified", {}))
        == "build_instance.end"
    )
