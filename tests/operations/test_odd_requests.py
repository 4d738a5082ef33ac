"""Requests that no database takes, and requests whose time is over."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from models.errors import Rejected
from models.lifecycle import InstanceState, OperationState
from models.messages.internal import CONDUCTOR
from tests.operations.audit import check_at_rest
from tests.operations.test_moves import ask, built, on_verb
from tests.operations.test_replay import moody
from tests.operations.world import PINNED, SHARED, World


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"scheduler_hints": {"x": float("nan")}}, "instance.scheduler_hints.x"),
        ({"scheduler_hints": {"x": [float("inf")]}}, "instance.scheduler_hints.x.0"),
        ({"name": "a\0b"}, "instance.name"),
        ({"metadata": {"k\0": "v"}}, "instance.metadata.k\ufffd"),
        ({"metadata": {"\ud800": float("nan")}}, "instance.metadata.\ufffd"),
        ({"name": "a\udfff"}, "instance.name"),
        ({"scheduler_hints": {"x": 2**64}}, "instance.scheduler_hints.x"),
        ({"scheduler_hints": {"x": -(2**63) - 1}}, "instance.scheduler_hints.x"),
        (
            {"block_devices": [{"volume_id": "v"}, {"volume_id": ""}]},
            "instance.block_devices.1.volume_id",
        ),
        ({"networks": ["blue", {}]}, "instance.networks.1"),
        (
            {"flavor": {**SHARED, "extra_specs": {"hw:cpu_policy ": "dedicated"}}},
            "instance.flavor.extra_specs.hw:cpu_policy ",
        ),
        ({"image": {"id": "img", "properties": {"": 1}}}, "instance.image.properties."),
    ],
)
def test_what_cannot_be_kept_is_refused_by_its_path(fields: dict[str, object], key: str) -> None:
    world = World()
    body = {"name": "vm", "flavor": SHARED, "image": {"id": "img"}, **fields}
    operation = world.submit("build_instances", {"instance": body})
    world.run_out()
    record = world.operation(operation)
    assert record.state is OperationState.FAILED
    assert record.error is not None
    assert (record.error["code"], record.error["key"]) == ("field_invalid", key)
    assert world.guests() == {}


def test_a_request_whose_message_cannot_be_taken_fails_for_whoever_asks() -> None:
    world = World()
    operation = str(uuid.uuid4())
    fault = Rejected("message_refused", "it asks to wait")
    for _ in range(2):
        world.service.handle_request("conductor.stop_instance", operation, {}, "mine", fault)
    record = world.operation(operation)
    assert record.state is OperationState.FAILED
    assert (record.error or {})["code"] == "message_refused"
    world.run_out()
    [told] = [outgoing for outgoing in world.delivered if outgoing.queue == "mine"]
    assert told.body["error"]["message"] == "it asks to wait"


def test_a_copy_that_cannot_be_taken_changes_nothing_of_the_operation_that_runs() -> None:
    world = World()
    body = {
        "context": {"project_id": "p"},
        "instance": {"name": "vm", "flavor": SHARED, "image": {"id": "img"}},
    }
    operation = str(uuid.uuid4())
    world.service.handle_request("conductor.build_instances", operation, body)
    fault = Rejected("message_refused", "it expired")
    world.service.handle_request("conductor.build_instances", operation, body, None, fault)
    world.run_out()
    assert world.operation(operation).state is OperationState.SUCCEEDED


def test_a_deadline_that_has_passed_undoes_what_was_begun() -> None:
    for outgoing_messages in range(8):
        world = World()
        operation = world.submit(
            "build_instances",
            {
                "instance": {"name": "vm", "flavor": PINNED, "image": {"id": "img"}},
                "deadline_s": 5.0,
            },
        )
        for _ in range(outgoing_messages):
            if queues := world.waiting_queues():
                world.deliver(queues[0])
        if world.living() or outgoing_messages == 0:
            world.now += 6.0 if outgoing_messages else 0.0
            world.run_out()
        if outgoing_messages and world.ended(operation) is OperationState.FAILED:
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


def refused(world: World, **fields: object) -> dict[str, object]:
    """Ask for an instance with these fields; return the error it is refused with."""
    operation = world.build(SHARED, **fields)
    world.run_out()
    record = world.operation(operation)
    assert record.state is OperationState.FAILED
    return dict(record.error or {})


@pytest.mark.parametrize("hint", ["same_host", "different_host"])
def test_a_hint_about_an_instance_that_never_was_is_a_wrong_request(hint: str) -> None:
    nobody = "00000000-0000-4000-8000-000000000000"
    error = refused(World(), scheduler_hints={hint: [nobody]})
    assert (error["code"], error["key"]) == ("instance_unknown", "instance.scheduler_hints")
    assert nobody in str(error["message"])
    assert refused(World(), scheduler_hints={hint: 7})["code"] == "hint_invalid"


def test_a_build_beside_a_deleted_instance_finds_no_host_and_apart_from_it_any() -> None:
    world = World()
    gone = built(world, SHARED)
    world.submit("delete_instance", {"instance_id": gone})
    world.run_out()
    error = refused(world, scheduler_hints={"same_host": gone})
    assert error["code"] == "no_valid_host"
    assert "3 are not the host of its companions, which have none" in str(error["message"])
    assert built(world, SHARED, scheduler_hints={"different_host": gone})
    check_at_rest(world)


def test_a_companion_that_went_later_does_not_bind_whoever_moves() -> None:
    world = World(hosts=2)
    companion = built(world, SHARED, host="host-0")
    instance_id = built(world, SHARED, scheduler_hints={"same_host": companion.upper()})
    assert world.instance_by_id(instance_id).host == "host-0"
    world.submit("delete_instance", {"instance_id": companion})
    world.run_out()
    move = world.submit("live_migrate_instance", {"instance_id": instance_id})
    world.run_out()
    assert world.ended(move) is OperationState.SUCCEEDED, world.operation(move)
    check_at_rest(world)


def defined(world: World, entry: str, body: dict[str, object]) -> dict[str, object]:
    """Define an entry; return the error that it is refused with, nothing if it is taken."""
    operation = world.submit("define_entry", {"entry": entry, "body": body})
    world.run_out()
    return dict(world.operation(operation).error or {})


def test_what_every_build_would_refuse_is_refused_when_it_is_defined() -> None:
    world = World()
    for specs, code in (
        ({"hw:numa_nodes": "0"}, "numa_nodes_invalid"),
        ({"resources:GOLD": "1"}, "resources_invalid"),
        ({"hw:cpu_realtime_mask": "^9999999999"}, "realtime_mask_invalid"),
        ({"hw:cpu_policy ": "dedicated"}, "field_invalid"),
    ):
        error = defined(world, "flavor", {"name": "f", **SHARED, "extra_specs": specs})
        assert error["code"] == code, error
        assert next(iter(specs)) in str(error["message"])
    image = {"id": "i", "properties": {"hw_firmware_type": "own"}}
    assert defined(world, "image", image)["code"] == "firmware_type_invalid"
    with world.store.read() as uow:
        assert not uow.catalogue.where(kind=("flavor", "image"))
    waits = {"hw:cpu_thread_policy": "require"}
    assert not defined(world, "flavor", {"name": "f", **SHARED, "extra_specs": waits})


def test_a_server_group_goes_only_when_its_last_member_has_gone() -> None:
    world = World()
    assert not defined(world, "server_group", {"name": "g", "policy": "affinity"})
    members = [built(world, SHARED, group="g") for _ in range(2)]
    remove = {"entry": "server_group", "name": "g"}
    for left in (2, 1):
        operation = world.submit("remove_entry", remove)
        world.run_out()
        error = world.operation(operation).error or {}
        assert error["code"] == "server_group_in_use"
        assert all(member in error["message"] for member in members)
        assert ("2 instances are" in error["message"]) == (left == 2)
        world.submit("delete_instance", {"instance_id": members.pop()})
        world.run_out()
    operation = world.submit("remove_entry", remove)
    world.run_out()
    assert world.ended(operation) is OperationState.SUCCEEDED


def test_a_member_that_came_between_asking_and_removing_keeps_its_group() -> None:
    world = World()
    assert not defined(world, "server_group", {"name": "g", "policy": "affinity"})
    instance_id = built(world, SHARED)
    world.store.after_commit = lambda: _join(world, instance_id)
    operation = world.submit("remove_entry", {"entry": "server_group", "name": "g"})
    world.run_out()
    assert world.ended(operation) is OperationState.FAILED
    with world.store.read() as uow:
        assert uow.catalogue.get("server_group", "g") is not None


def _join(world: World, instance_id: str) -> None:
    world.store.after_commit = lambda: None
    with world.store.begin() as uow:
        instance = uow.instances.get(instance_id)
        assert instance is not None
        uow.instances.save(replace(instance, group="g"))


def test_a_move_whose_source_refused_once_is_confirmed_by_itself_later() -> None:
    mood = {"bad": True}
    world = World(hosts=2, injected_faults=moody("destroy", "host-0", mood))
    instance_id = built(world, PINNED, host="host-0")
    ask(world, "migrate_instance", instance_id)
    for state in (InstanceState.RESIZED, InstanceState.ACTIVE):
        world.pass_time(86_500.0)
        assert world.service.confirm_old_moves() == 1
        assert world.service.confirm_old_moves() in (0, 1)
        world.run_out()
        assert world.instance_by_id(instance_id).state is state
        mood["bad"] = False
    check_at_rest(world)


def test_the_same_reason_many_times_is_said_once() -> None:
    world = World(hosts=2, injected_faults=on_verb("refused", "power_on", "host-1"))
    instance_id = built(world, PINNED, host="host-0")
    operation = ask(world, "migrate_instance", instance_id)
    message = str((world.operation(operation).error or {})["message"])
    assert message.startswith("8 attempts failed. host-1: ")
    assert message.endswith(" (8 times)")
    assert message.count("host-1") == 1


def test_a_build_whose_instances_were_called_back_says_by_what() -> None:
    world = World(hosts=2)
    build = world.build(PINNED, count=2)
    world.deliver(CONDUCTOR)
    for index in range(2):
        world.submit("delete_instance", {"instance_id": world.instance(build, index).id})
    world.run_out()
    assert world.ended(build) is OperationState.CANCELLED
    reason = "superseded by delete_instance, and 1 more"
    assert (world.operation(build).error or {})["message"] == reason


def test_a_rebuild_with_an_image_that_needs_more_names_the_field_that_it_has() -> None:
    world = World()
    instance_id = built(world, {**SHARED, "root_gb": 1})
    for needs in ({"min_memory_mb": 10_000}, {"min_disk_gb": 100}):
        image = {"id": "large", **needs}
        operation = ask(world, "rebuild_instance", instance_id, image=image)
        assert (world.operation(operation).error or {})["key"] == "image"
