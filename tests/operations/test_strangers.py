"""An ask is answered by whom it was asked, whatever others know of it."""

from __future__ import annotations

from typing import Any

import pytest

from conductor.store import OperationRecord
from models.errors import Rejected
from models.lifecycle import OperationState
from models.messages.internal import SCHEDULER, Progress, Reply, Token
from tests.operations.world import World


def token_of(waiting: OperationRecord) -> Token:
    assert waiting.waiting is not None
    return Token(**waiting.waiting["outgoing"]["body"]["token"])


def reply_of(token: Token, sender: str, **result: Any) -> dict[str, Any]:
    return Reply(token=token, sender=sender, outcome="done", result=result).to_json()


def asked_of_a_host() -> tuple[World, str, OperationRecord]:
    world = World()
    build = world.build()
    for queue in ("conductor", SCHEDULER, "reports"):
        world.deliver(queue)
    return world, build, world.child(build)


def refused(world: World, body: dict[str, Any]) -> bool:
    with pytest.raises(Rejected) as caught:
        world.service.handle_reply(body)
    return caught.value.code == "reply_refused"


def test_no_other_host_nor_the_scheduler_answers_for_a_host() -> None:
    world, build, child = asked_of_a_host()
    asked = str(child.waiting_on).removeprefix("compute:")
    others = {*world.hosts, SCHEDULER, "nobody"} - {asked}
    for sender in others:
        assert refused(world, reply_of(token_of(child), sender))
    assert world.child(build) == child
    world.run_out()
    assert world.ended(build) is OperationState.SUCCEEDED


def test_no_host_answers_for_the_scheduler() -> None:
    world = World()
    build = world.build()
    world.deliver("conductor")
    waiting = next(operation for operation in world.living() if operation.waiting_on == SCHEDULER)
    for sender in (*world.hosts, "compute_scheduler"):
        assert refused(world, reply_of(token_of(waiting), sender, selected=[]))
    world.run_out()
    assert world.ended(build) is OperationState.SUCCEEDED


@pytest.mark.parametrize("wrong", [{"step": "another"}, {"attempt": 2}])
def test_an_answer_to_another_step_is_none_to_this_one(wrong: dict[str, Any]) -> None:
    world, build, child = asked_of_a_host()
    asked = str(child.waiting_on).removeprefix("compute:")
    assert refused(world, reply_of(token_of(child).model_copy(update=wrong), asked))
    assert world.child(build) == child


def test_how_far_a_copy_is_says_the_host_that_copies() -> None:
    world = World()
    build = world.build()
    world.run_out()
    source = str(world.instance(build).host)
    body = {"instance_id": world.instance(build).id}
    move = world.submit("live_migrate_instance", body)
    world.deliver("conductor")
    while not str(world.operation(move).waiting_on).startswith(f"compute:{source}"):
        world.deliver(world.waiting_queues()[0])
    token = token_of(world.operation(move))
    told = []
    for sender in (*sorted({*world.hosts} - {source}), source):
        world.service.handle_progress(Progress(token=token, sender=sender, percent=40).to_json())
        with world.store.read() as uow:
            told.append([migration.progress_percent for migration in uow.migrations.where()])
    assert told == [[0], [0], [40]]
