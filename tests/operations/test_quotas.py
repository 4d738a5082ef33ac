"""Limits by size, resource class, project and user; checked when asked, and once more after."""

from __future__ import annotations

from typing import Any

import pytest

from conductor.store import CatalogueEntry
from models.lifecycle import InstanceState, OperationState
from models.messages.internal import CONDUCTOR
from tests.operations.audit import check_at_rest
from tests.operations.world import CONTEXT, PINNED, SHARED, Killed, World

PROJECT = CONTEXT["project_id"]
BIGGER = {"vcpus": 3, "memory_mb": 1024, "extra_specs": {"hw:cpu_policy": "dedicated"}}


def limit(world: World, **limits: Any) -> None:
    with world.store.begin() as uow:
        body = {"name": PROJECT, **limits}
        uow.catalogue.put(CatalogueEntry("quota", PROJECT, body, uow.now))


def outcome(world: World, operation: str) -> str:
    """Let it end; return its error's message, or its state."""
    world.run_out()
    record = world.operation(operation)
    return str(record.error["message"]) if record.error else record.state.value


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"instances": 1}, "instances is 1: project {p} uses 1 of 1"),
        ({"cores": 3}, "cores is 2: project {p} uses 2 of 3"),
        ({"classes": {"PCPU": 3}}, "PCPU is 2: project {p} uses 2 of 3"),
        ({"users": {"u": {"instances": 1}}}, "instances is 1: user u of project {p} uses 1 of 1"),
        (
            {"cores": 100, "users": {"u": {"classes": {"PCPU": 2}}}},
            "PCPU is 2: user u of project {p} uses 2 of 2",
        ),
    ],
)
def test_what_exceeds_a_limit_is_refused_with_use_and_limit(
    limits: dict[str, Any], message: str
) -> None:
    world = World(hosts=1)
    limit(world, **limits)
    instance = {"name": "vm", "flavor": PINNED, "image": {"id": "img"}}
    request = {"context": {"project_id": PROJECT, "user_id": "u"}, "instance": instance}
    first = world.submit("build_instances", request)
    assert outcome(world, first) == "SUCCEEDED"
    second = world.submit("build_instances", request)
    assert outcome(world, second) == message.format(p=PROJECT)
    error = world.operation(second).error or {}
    assert error["code"] == "quota_exceeded"
    check_at_rest(world)


def test_classes_that_are_not_asked_for_do_not_count() -> None:
    world = World(hosts=1)
    limit(world, classes={"PCPU": 0, "CUSTOM_GOLD": 0})
    assert outcome(world, world.build(SHARED)) == "SUCCEEDED"
    assert outcome(world, world.build(PINNED)) == f"PCPU is 2: project {PROJECT} uses 0 of 0"


def test_custom_classes_count_as_the_flavor_asks_for_them() -> None:
    world = World(hosts=1)
    limit(world, classes={"CUSTOM_GOLD": 1})
    golden = {**SHARED, "extra_specs": {"resources:CUSTOM_GOLD": "2"}}
    line = outcome(world, world.build(golden))
    assert line == f"CUSTOM_GOLD is 2: project {PROJECT} uses 0 of 1"


def test_what_request_groups_ask_counts_too() -> None:
    world = World(hosts=1)
    limit(world, classes={"CUSTOM_GOLD": 2})
    grouped = {"resources1:CUSTOM_GOLD": "2", "resources_B:CUSTOM_GOLD": "1"}
    line = outcome(world, world.build({**SHARED, "extra_specs": grouped}))
    assert line == f"CUSTOM_GOLD is 3: project {PROJECT} uses 0 of 2"


def test_the_users_limit_leaves_other_users_alone() -> None:
    world = World(hosts=1)
    limit(world, users={"somebody else": {"instances": 0}})
    assert outcome(world, world.build(SHARED)) == "SUCCEEDED"


def test_a_resize_counts_by_how_much_it_grows() -> None:
    world = World(hosts=2)
    limit(world, cores=3, classes={"PCPU": 3})
    built = world.build(PINNED)
    assert outcome(world, built) == "SUCCEEDED"
    instance_id = world.instance(built).id
    grown = world.submit("resize_instance", {"instance_id": instance_id, "flavor": BIGGER})
    assert outcome(world, grown) == "SUCCEEDED"
    world.submit("confirm_resize", {"instance_id": instance_id})
    world.run_out()
    larger = {**BIGGER, "vcpus": 4}
    refused = world.submit("resize_instance", {"instance_id": instance_id, "flavor": larger})
    assert outcome(world, refused) == f"cores is 1: project {PROJECT} uses 3 of 3"
    shrunk = world.submit("resize_instance", {"instance_id": instance_id, "flavor": PINNED})
    assert outcome(world, shrunk) == "SUCCEEDED"


def test_a_limit_that_is_lowered_meanwhile_fails_every_instance_of_the_request() -> None:
    world = World(hosts=1)
    limit(world, instances=3)
    operation = world.build(SHARED, count=3)
    world.store.commits_left = 1
    with pytest.raises(Killed):
        world.deliver(CONDUCTOR)
    assert world.operation(operation).state is OperationState.ACCEPTED
    world.restart_conductor()
    limit(world, instances=2)
    line = outcome(world, operation)
    assert line == f"instances is 1: project {PROJECT} uses 3 of 2"
    with world.store.read() as uow:
        states = [instance.state for instance in uow.instances.where()]
    assert states == [InstanceState.ERROR] * 3
    check_at_rest(world)
