"""Whoever is too old for a message ends or reroutes its operation at once, with that reason."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from conductor.store import DeadLetter
from models.errors import Rejected
from models.lifecycle import InstanceState, OperationState
from models.messages.internal import REPLY, REPORTS, SCHEDULER, OutgoingMessage
from tests.operations.audit import check_at_rest
from tests.operations.world import SHARED, World


class MixedWorld(World):
    """Some messages are of a version that their receivers are too old for."""

    def __init__(self, **options: Any) -> None:
        self.newer: Callable[[OutgoingMessage], bool] = lambda _: False
        super().__init__(**options)

    def hand_over(self, outgoing: OutgoingMessage) -> None:
        if self.newer(outgoing):
            outgoing = replace(outgoing, body={**outgoing.body, "version": 2, "new_in_2": True})
        try:
            super().hand_over(outgoing)
        except Rejected as error:
            self.record_dead_letter(outgoing, f"{error.code}: {error.message}")

    def record_dead_letter(self, outgoing: OutgoingMessage, reason: str, **headers: str) -> None:
        """Hand the conductor a dead letter, as it is read of the broker."""
        own = {
            "id": outgoing.id,
            "parent_id": outgoing.parent_id,
            "root_id": outgoing.root_id,
            **headers,
        }
        body = json.dumps({"sender": outgoing.body.get("sender", "")})
        kept = DeadLetter(
            str(uuid.uuid4()), self.now, outgoing.queue, outgoing.task, reason, body, own
        )
        self.service.handle_dead_letter(kept)


def test_a_refusal_that_a_process_reports_ends_the_wait_at_once() -> None:
    world = World()
    operation = world.build(SHARED)
    while not (asks := [q for q in world.waiting_queues() if q == SCHEDULER]):
        world.deliver(world.waiting_queues()[0])
    ask = world.bus.take(asks[0])
    assert ask is not None
    refusal = {
        "sender": SCHEDULER,
        "reason": "field_missing: token is missing",
        "refused_task": ask.task,
        "message_id": ask.id,
        "parent_id": ask.parent_id,
    }
    world.service.handle_refusal(refusal)
    record = world.operation(operation)
    assert (record.error or {})["code"] == "field_missing"
    assert world.now == 1_000_000.0  # no time has passed


def run_out(world: World, operation_id: str) -> float:
    began = world.now
    world.settle()
    while not world.operation(operation_id).state.ended:
        world.settle()
        world.pass_time(5.0)
        assert world.now - began < 3_000
    return world.now - began


def built(world: World, **instance: Any) -> str:
    build = world.build(SHARED, **instance)
    world.run_out()
    return world.instance(build).id


@pytest.mark.parametrize(
    ("task", "more"), [("stop_instance", {}), ("rebuild_instance", {"image": {"id": "img-2"}})]
)
def test_a_host_too_old_for_its_instruction_ends_the_operation_at_once_and_stays_healthy(
    task: str, more: dict[str, Any]
) -> None:
    world = MixedWorld()
    instance_id = built(world, host="host-0")
    world.newer = lambda outgoing: outgoing.queue == "compute_host-0"
    asked = world.submit(task, {"instance_id": instance_id, **more})
    assert run_out(world, asked) < 30.0
    record = world.operation(asked)
    assert record.state is OperationState.FAILED
    assert (record.error or {})["code"] == "version_unsupported"
    assert world.host("host-0").degraded is None
    assert world.instance_by_id(instance_id).state is InstanceState.ACTIVE
    world.newer = lambda _: False
    check_at_rest(world)


def test_a_build_for_a_host_too_old_goes_to_another_one() -> None:
    world = MixedWorld()
    chosen = world.build(SHARED)
    world.newer = lambda outgoing: outgoing.queue == "compute_host-0"
    builds = [chosen, *(world.build(SHARED) for _ in range(5))]
    for build in builds:
        assert run_out(world, build) < 60.0
        assert world.ended(build) is OperationState.SUCCEEDED
        assert world.instance(build).host != "host-0"
    assert world.host("host-0").degraded is None


def test_an_answer_too_new_for_the_conductor_ends_the_operation_at_once() -> None:
    world = MixedWorld()
    instance_id = built(world, host="host-0")
    world.newer = lambda outgoing: outgoing.task == REPLY and outgoing.body["sender"] == "host-0"
    stop = world.submit("stop_instance", {"instance_id": instance_id})
    assert run_out(world, stop) < 60.0
    assert (world.operation(stop).error or {})["code"] == "version_unsupported"
    assert world.host("host-0").degraded is None


def test_a_scheduler_too_old_for_a_question_ends_the_build_at_once() -> None:
    world = MixedWorld()
    world.newer = lambda outgoing: outgoing.queue == SCHEDULER
    build = world.build(SHARED)
    assert run_out(world, build) < 30.0
    assert (world.operation(build).error or {})["code"] == "version_unsupported"


def asked_of_a_host(world: MixedWorld) -> tuple[str, OutgoingMessage]:
    """Return a stop that waits for its host, and the message that it has out."""
    instance_id = built(world, host="host-0")
    stop = world.submit("stop_instance", {"instance_id": instance_id})
    world.deliver("conductor")
    waiting = world.operation(stop).waiting
    assert waiting is not None
    return stop, OutgoingMessage(**waiting["outgoing"])


@pytest.mark.parametrize(
    "forged",
    [
        lambda outgoing: replace(outgoing, queue="compute_host-1"),
        lambda outgoing: replace(outgoing, id=str(uuid.uuid4())),
        lambda outgoing: replace(outgoing, task="compute.destroy"),
        lambda outgoing: replace(outgoing, queue=REPORTS),
        lambda outgoing: replace(outgoing, queue=REPORTS, task=REPLY, parent_id=outgoing.id),
        lambda outgoing: replace(
            outgoing, queue=REPORTS, task=REPLY, parent_id=outgoing.id, body={"sender": "host-1"}
        ),
    ],
)
def test_a_dead_letter_that_is_not_the_ask_itself_ends_nothing(
    forged: Callable[[OutgoingMessage], OutgoingMessage],
) -> None:
    world = MixedWorld()
    stop, outgoing = asked_of_a_host(world)
    before = world.operation(stop)
    world.record_dead_letter(forged(outgoing), "version_unsupported: it says so")
    assert world.operation(stop) == before


def test_a_dead_letter_that_comes_again_or_late_changes_nothing() -> None:
    world = MixedWorld()
    stop, outgoing = asked_of_a_host(world)
    world.run_out()
    ended = world.operation(stop)
    world.record_dead_letter(outgoing, "version_unsupported: version is 2")
    assert world.operation(stop) == ended


def test_an_instruction_that_killed_every_worker_is_given_up_with_that_reason() -> None:
    world = MixedWorld()
    stop, outgoing = asked_of_a_host(world)
    world.bus.take("compute_host-0")
    world.record_dead_letter(outgoing, "given up: every worker that took it died or gave it back")
    run_out(world, stop)
    assert (world.operation(stop).error or {})["code"] == "undeliverable"
    assert "given up" in (world.operation(stop).error or {})["message"]
