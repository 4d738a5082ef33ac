"""Whoever watches sees every state that was committed, what it is about, and what was given up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from conductor.operation_status import OperationStatus, arguments_of
from conductor.processes.embedded.bus_desk import Desk
from conductor.processes.service_construction import build_service
from conductor.scheduling.scheduling_service import Scheduler
from conductor.scheduling.settings import SchedulingSettings
from models.ids import compute_queue
from models.lifecycle import OperationState
from models.messages.internal import CONDUCTOR, REPORTS, SCHEDULER
from tests.operations.world import PINNED, Killed, World

S = OperationState


class Watched(World):
    """A world whose conductor is watched."""

    def __init__(self, hosts: int = 3, **more: Any) -> None:
        self.statuses: list[OperationStatus] = []
        super().__init__(hosts, **more)

    def restart_conductor(self) -> None:
        super().restart_conductor()
        self.service = build_service(
            self.settings, self.store, self.bus, "conductor", self.statuses.append
        )
        scheduler = Scheduler(self.store, SchedulingSettings(refresh_s=0.0))
        self.desk = Desk(self.service, scheduler)

    def states(self, operation_id: str) -> list[OperationState]:
        """Return the states that were seen of an operation, in order, without repetition."""
        seen = [status.record.state for status in self.statuses if status.record.id == operation_id]
        return [state for at, state in enumerate(seen) if at == 0 or state is not seen[at - 1]]

    def last(self, operation_id: str) -> OperationStatus:
        return [status for status in self.statuses if status.record.id == operation_id][-1]

    def given_up(self) -> list[str]:
        return [status.given_up["task"] for status in self.statuses if status.given_up is not None]

    def move(self, verb: str, instance_id: str, **more: Any) -> str:
        return self.submit(f"{verb}_instance", {"instance_id": instance_id, **more})


def test_a_build_is_seen_in_every_state_claims_included() -> None:
    world = Watched()
    build = world.build()
    world.settle()
    assert world.states(build) == [S.ACCEPTED, S.SCHEDULING, S.CLAIMED, S.RUNNING, S.SUCCEEDED]
    assert world.states(world.child(build).id) == [S.DISPATCHED, S.RUNNING, S.SUCCEEDED]
    assert world.given_up() == []


def test_an_end_is_seen_once_as_new_however_often_it_is_looked_at() -> None:
    world = Watched()
    build = world.build()
    world.settle()
    world.now += 1
    world.submit("build_instances", world.operation(build).request, build)
    world.settle()
    ends = [
        status
        for status in world.statuses
        if status.record.id == build and status.record.state.ended
    ]
    assert [end.ended_now for end in ends] == [True, *[False] * (len(ends) - 1)]
    assert len(ends) > 1


def test_what_is_said_of_a_build_names_it_and_nothing_that_describes_it() -> None:
    world = Watched()
    build = world.build(PINNED, 2, name="web", metadata={"note": "canary"}, tags=["canary"])
    world.settle()
    said = arguments_of(world.last(build))
    assert said == {
        "name": "web",
        "flavor": "2 vCPUs, 1024 MiB",
        "image": "img",
        "count": 2,
        "replay_of": None,
        "project": "demo",
    }
    child = world.child(build)
    said = arguments_of(world.last(child.id))
    assert (said["instance"], said["instance_id"]) == ("web-1", child.instance_id)
    assert said["host"] == world.instance(build).host
    assert said["flavor"] == "custom (2 vCPUs, 1024 MiB)"


def test_what_is_said_of_a_move_names_both_ends_and_how_far_it_is() -> None:
    world = Watched()
    build = world.build()
    world.settle()
    instance = world.instance(build)
    move = world.move("live_migrate", instance.id)
    world.settle()
    copies = [s for s in world.statuses if s.record.id == move and s.record.step == "copy"]
    assert copies
    said = arguments_of(copies[-1])
    assert (said["step"], said["source"]) == ("copy", instance.host)
    assert said["target"] == world.instance(build).host != instance.host
    assert "step" not in arguments_of(world.last(move))


@pytest.mark.parametrize(
    "request_body",
    [
        {"instance": "text"},
        {"instance": {"name": ["a"], "flavor": {"vcpus": {"a": 1}}, "image": 5, "count": "x"}},
        {"instance": {"flavor": {"name": {"name": {"id": "deep"}}}}, "count": None},
        {},
    ],
)
def test_something_is_said_of_any_request_however_wrong(request_body: dict[str, Any]) -> None:
    world = Watched()
    build = world.submit("build_instances", request_body)
    world.settle()
    assert world.states(build) == [S.FAILED]
    assert isinstance(arguments_of(world.last(build)), dict)


def test_an_ask_to_a_host_that_died_is_given_up() -> None:
    world = Watched(hosts=1)
    build = world.build()
    for queue in (CONDUCTOR, SCHEDULER, REPORTS):
        world.deliver(queue)
    assert world.bus.depths()[compute_queue("host-0")] == 1
    world.kill_host("host-0")
    world.run_out()
    assert world.operation(build).state is S.FAILED
    assert "compute.spawn" in world.given_up()


def test_an_ask_that_is_only_repeated_is_not_given_up() -> None:
    world = Watched()
    world.build()
    for queue in (CONDUCTOR, SCHEDULER):
        world.deliver(queue)
    world.pass_time(16.0)
    assert world.given_up() == []


def test_the_ask_of_an_operation_that_is_overtaken_is_given_up() -> None:
    world = Watched(hosts=1)
    build = world.build()
    for queue in (CONDUCTOR, SCHEDULER, REPORTS):
        world.deliver(queue)
    child = world.child(build)
    world.move("delete", child.instance_id or "")
    world.deliver(CONDUCTOR)
    assert world.given_up() == ["compute.spawn"]
    world.settle()


def test_an_end_whose_conductor_died_before_showing_it_is_shown_by_the_next() -> None:
    for dies_after in range(1, 60):
        world = Watched()
        build = world.build()
        world.store.commits_left = dies_after
        try:
            world.run_out()
        except Killed:
            pass
        else:
            raise AssertionError("no death came between its end and showing it")
        if world.operation(build).state.ended and S.SUCCEEDED not in world.states(build):
            break
    world.restart_conductor()
    world.now += 10.0
    assert (
        world.service.publish_ends(
            lambda ids: [identifier for identifier in ids if identifier == build]
        )
        == 1
    )
    assert world.states(build)[-1] is S.SUCCEEDED
    assert not world.last(build).ended_now


def test_an_end_that_is_shown_or_only_just_there_or_long_past_is_not_shown_again() -> None:
    world = Watched()
    build = world.build()
    world.run_out()
    asked: list[str] = []
    before = len(world.statuses)

    def nothing(ids: Sequence[str]) -> list[str]:
        asked.extend(ids)
        return []

    assert world.service.publish_ends(list) == 0
    world.now += 60.0
    assert world.service.publish_ends(nothing) == 0
    assert build in asked
    world.now += 3_600.0
    assert world.service.publish_ends(list) == 0
    assert len(world.statuses) == before
