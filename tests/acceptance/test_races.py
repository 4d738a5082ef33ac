"""A delete wins over a running build, whatever the interleaving."""

from __future__ import annotations

import uuid

from models.lifecycle import InstanceState, OperationState
from tests.acceptance.fleet import Fleet
from tests.acceptance.sending import build_body, instance_of
from tests.acceptance.stops import Moment


def check_gone(fleet: Fleet, build: str, deletes: list[str]) -> None:
    """Every delete succeeded; nothing is left of the instance, on the host or in the books."""
    states = [record.state for record in fleet.all_ended([*deletes, build])]
    assert states[:-1] == [OperationState.SUCCEEDED] * len(deletes)
    instance_id = instance_of(build)
    assert fleet.instance(instance_id).state is InstanceState.DELETED
    fleet.settle()
    assert instance_id not in fleet.guests()
    assert fleet.effects(instance_id, "spawn") == fleet.effects(instance_id, "destroy")
    with fleet.store.read() as uow:
        assert uow.allocations.where(consumer_id=instance_id) == []


def test_two_deletes_at_every_step_of_a_build_both_win(
    fleet: Fleet, build_journey: list[Moment]
) -> None:
    for moment in build_journey:
        build = str(uuid.uuid4())
        stop = fleet.stops.put(build, moment.text)
        fleet.sender.send("build_instances", build_body(), build)
        hit = fleet.stops.wait_hit(stop)
        deletes = [fleet.sender.ask("delete", instance_of(build)) for _ in range(2)]
        fleet.until(
            lambda d=deletes: fleet.stops.held_up() or any(map(fleet.operation, d)),
            "a delete to be taken up",
        )
        fleet.stops.go_on(stop, hit)
        check_gone(fleet, build, deletes)


def test_a_delete_that_overtakes_its_build_wins(fleet: Fleet) -> None:
    build = str(uuid.uuid4())
    delete = fleet.sender.ask("delete", instance_of(build))
    fleet.ended(delete)
    fleet.sender.send("build_instances", build_body(), build)
    check_gone(fleet, build, [delete])
    assert fleet.effects(instance_of(build), "spawn") == 0


def test_a_delete_and_its_build_sent_together_leave_nothing(fleet: Fleet) -> None:
    builds = [str(uuid.uuid4()) for _ in range(10)]
    deletes = {}
    for build in builds:
        fleet.sender.send("build_instances", build_body(), build)
        deletes[build] = [fleet.sender.ask("delete", instance_of(build))]
    for build in builds:
        check_gone(fleet, build, deletes[build])


def test_two_deletes_together_of_a_running_instance_both_succeed(fleet: Fleet) -> None:
    build = fleet.sender.build()
    fleet.ended(build)
    deletes = [fleet.sender.ask("delete", instance_of(build)) for _ in range(2)]
    check_gone(fleet, build, deletes)
    assert fleet.effects(instance_of(build), "destroy") == 1


def test_a_delete_does_not_wait_for_a_spawn_that_hangs(fleet: Fleet) -> None:
    fleet.restart("compute-beta", "--habit", "spawn.hang=1")
    build = fleet.sender.build(host="beta")
    instance_id = instance_of(build)
    fleet.until(
        lambda: fleet.journaled("beta", "accepted", instance_id, "spawn"), "the spawn to hang"
    )
    delete = fleet.sender.ask("delete", instance_id)
    check_gone(fleet, build, [delete])
