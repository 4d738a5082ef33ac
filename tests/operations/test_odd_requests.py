"""Requests that no database takes, and requests whose time is over."""

from __future__ import annotations

import pytest

from models.lifecycle import InstanceState, OperationState
from tests.operations.audit import check_at_rest
from tests.operations.test_moves import built
from tests.operations.world import PINNED, SHARED, World


@pytest.mark.parametrize(
    ("wishes", "key"),
    [
        ({"scheduler_hints": {"x": float("nan")}}, "instance.scheduler_hints.x"),
        ({"scheduler_hints": {"x": [float("inf")]}}, "instance.scheduler_hints.x.0"),
        ({"name": "a\0b"}, "instance.name"),
        ({"metadata": {"k\0": "v"}}, "instance.metadata.k\ufffd"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_its_path(wishes: dict[str, object], key: str) -> None:
    world = World()
    body = {"name": "vm", "flavor": SHARED, "image": {"id": "img"}, **wishes}
    operation = world.submit("build_instances", {"instance": body})
    world.run_out()
    record = world.operation(operation)
    assert record.state is OperationState.FAILED
    assert record.error is not None
    assert (record.error["code"], record.error["key"]) == ("field_invalid", key)
    assert world.guests() == {}


def test_a_deadline_that_has_passed_undoes_what_was_begun() -> None:
    for letters in range(8):
        world = World()
        operation = world.submit(
            "build_instances",
            {
                "instance": {"name": "vm", "flavor": PINNED, "image": {"id": "img"}},
                "deadline_s": 5.0,
            },
        )
        for _ in range(letters):
            if queues := world.waiting_queues():
                world.deliver(queues[0])
        if world.living() or letters == 0:
            world.now += 6.0 if letters else 0.0
            world.run_out()
        if letters and world.ended(operation) is OperationState.FAILED:
            assert world.instance(operation).state is InstanceState.ERROR
            assert (world.instance(operation).fault or {})["code"] == "deadline_exceeded"
        check_at_rest(world)


def test_a_deadline_of_nothing_is_never_met() -> None:
    world = World()
    body = {"name": "vm", "flavor": PINNED, "image": {"id": "img"}}
    operation = world.submit("build_instances", {"instance": body, "deadline_s": 1e-9})
    world.deliver("conductor")
    world.now += 0.001
    world.run_out()
    error = world.operation(operation).error
    assert error is not None
    assert error["code"] == "deadline_exceeded"
    check_at_rest(world)


def test_a_deadline_does_not_end_what_cannot_be_turned_back() -> None:
    world = World(hosts=2)
    instance_id = built(world, PINNED)
    delete = world.submit("delete_instance", {"instance_id": instance_id, "deadline_s": 1e-9})
    world.deliver("conductor")
    world.now += 0.001
    world.run_out()
    assert world.ended(delete) is OperationState.SUCCEEDED
    check_at_rest(world)
